"""Write the figures on measured GPUs from data/reference: `python docs/explanation/real_gpus.py`.

`make docs` runs it. It fills the blocks between `<!-- from data/reference: NAME -->` and
`<!-- end -->` in `PAGES`; a test fails if a block differs. A card is a folder of data/reference
with `models.parquet`, beside the rows of its operators in `<folder>_*.parquet`. An unknown number
is empty. Each block is a function of its name.
"""

# ruff: noqa: D103

import itertools
import json
import math
import re
import textwrap
from collections import Counter
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

REPOSITORY = Path(__file__).parent.parent.parent
FOLDER = REPOSITORY / "data" / "reference"
PAGES = (
    "README.md",
    "data/reference/README.md",
    "docs/explanation/real_gpus.md",
    "docs/explanation/real_gpus_tables.md",
)

CLAMP, ADD = "launch_clamp_scalar", "CUDAFunctor_add"
KERNELS = {
    "batch_norm": "bn_fw_inf", "relu_": CLAMP, "hardtanh_": CLAMP, "add": ADD, "add_": ADD,
    "gelu": "GeluCUDAKernel",
}  # fmt: skip
"""Operators of one kernel -> what its name in kernels.csv contains."""
ELEMENTWISE = ("add", "add_", "gelu", "hardtanh_", "mul", "relu_", "sigmoid", "silu_")
PRODUCTS = "conv|linear|mm|attention"
VIEW_S = 1e-6
"""Calls in context without a row that take less are views: they launch no kernel."""


class Card:
    """The files of one card. `rows` are its operators, by tuple id."""

    def __init__(self, name: str, file: Path) -> None:
        self.name, self.title, folder = name, name.upper(), FOLDER / name
        self.sensor = json.loads((folder / "sensor.json").read_text(encoding="utf-8"))
        self.models = pd.read_parquet(folder / "models.parquet").query("status == 'ok'")
        answers = pd.read_parquet(folder / "answers.parquet").query("part == 'model'")
        self.answers = answers.set_index(["model", "source", "quantity"])
        csv = {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}
        self.peers, self.waiting = csv.get("peers"), csv.get("waiting")
        kernels = csv.get(
            "kernels", pd.DataFrame(columns=["model", "where", "name", "calls", "mean_us"])
        )
        self.kernels = kernels[kernels["where"] == "GPU"]
        rows = pd.read_parquet(file).set_index("tuple_id").query("status == 'ok'")
        rows["op"] = rows.operator.str.split(".").str[1]
        rows["capped"] = rows["flags"].map(lambda flags: "power_capped" in flags)
        rows["window_w"] = rows.power_sample_w.map(np.mean)
        # Power of the window and at the timed pace gives the pace, if a waiting GPU draws idle
        # power. Short operators were replayed, without the gaps of launches.
        pace = (rows.power_w - rows.idle_power_w) / (rows.window_w - rows.idle_power_w)
        rows["pace"] = rows.power_pace.astype(float).fillna(pace)
        replayed = (rows.pace < 0.99) & (rows.time_s < 30e-6) & ~rows.capped
        rows["gap_s"] = (rows.time_s * (1 - rows.pace)).where(replayed)
        self.rows, self.gap_s = rows, rows.gap_s.mean()
        eager = self.models[self.models.launch_mode == "eager"].groupby("model")
        self.end_to_end = eager[["time_s", "host_time_s", "energy_j"]].mean()
        times = self.end_to_end
        estimates = self.answers.value.reindex([(m, "estimate", "time_s") for m in times.index])
        apart = (times.host_time_s >= 0.95 * times.time_s) | estimates.isna().to_numpy()
        # The host sets the pace, or there is no estimate.
        self.apart, self.estimated = list(times.index[apart]), list(times.index[~apart])
        graphs = self.models[self.models.launch_mode == "graph"].groupby("model")
        self.graphs = graphs[["time_s", "energy_j"]].mean()

    def answer(self, model: str, source: str, quantity: str) -> list[float]:
        """A number with its interval."""
        return self.answers.loc[(model, source, quantity), ["value", "low", "high"]].tolist()

    def eager(self, model: str) -> pd.DataFrame:
        """Its end-to-end runs."""
        return self.models[(self.models.model == model) & (self.models.launch_mode == "eager")]

    def flags(self, model: str) -> str:
        """Flags of its end-to-end runs."""
        return ", ".join(sorted(set().union(*self.eager(model)["flags"]))) or "none"

    def calls(self, model: str) -> pd.DataFrame:
        """Its calls, with `context_s` (mean over runs), and the rows of those that have one."""
        runs = self.eager(model).dropna(subset=["call_time_s"])
        calls = pd.DataFrame({"tuple_id": runs.call_tuple_id.iloc[0] if len(runs) else []})
        calls["context_s"] = np.mean(np.vstack(list(runs.call_time_s)), axis=0) if len(runs) else []
        return calls.join(self.rows, on="tuple_id")

    def launching(self, model: str) -> pd.DataFrame:
        """Its calls that launch kernels."""
        calls = self.calls(model)
        return calls[calls.time_s.notna() | (calls.context_s > VIEW_S)]

    @cached_property
    def events_s(self) -> pd.Series:
        """What reading events adds to a call: call - kernel - gap, by model and operator."""
        found = {}
        for model, op in itertools.product(self.kernels.model.unique(), KERNELS):
            calls = self.launching(model).query("op == @op")
            named = self.kernels.name.str.contains(KERNELS[op], regex=False)
            kernels = self.kernels[named & (self.kernels.model == model)]
            if len(calls) and len(calls) == kernels.calls.sum():
                kernel_s = (kernels.calls * kernels.mean_us).sum() * 1e-6 / len(calls)
                found[model, op] = calls.context_s.mean() - kernel_s - self.gap_s
        return pd.Series(found)


def cards() -> list[Card]:
    """The cards, by name."""
    folders = sorted(path.parent.name for path in FOLDER.glob("*/models.parquet"))
    files = {}
    for file in FOLDER.glob("*.parquet"):
        own = [name for name in folders if file.name.startswith(f"{name}_")]
        files.update({max(own, key=len): file} if own else {})
    return [Card(name, files[name]) for name in folders]


CARDS = cards()
PAIRS = [(card, model) for card in CARDS for model in card.estimated]
APART = [(card, model) for card in CARDS for model in card.apart]


def table(header: str, *rows: tuple) -> str:
    """A table of Markdown. Its header is in one text."""
    titles = header.split(" | ")
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in [titles, *rows]]
    return "\n".join([head, "|---" * len(titles) + "|", *body])


def bullets(lines: list[str]) -> str:
    """A list. No line ends between a number and its unit."""
    tied = (re.sub(r"(?<=\d) (?=[%µmWJ°])", "\0", f"- {line}") for line in lines)
    return "\n".join(textwrap.fill(x, 120, subsequent_indent="  ") for x in tied).replace("\0", " ")


def number(value: float, digits: int = 3) -> str:
    """A number of so many digits."""
    if math.isnan(value):
        return ""
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


def percent(share: float, unit: str = " %") -> str:
    """Signed, of two digits or to a tenth."""
    if math.isnan(share):
        return ""
    digits = 0 if abs(share) > 0.0995 else 1
    return f"{round(100 * share, digits) + 0.0:+.{digits}f}{unit}"


def ms(seconds: float) -> str:
    """Milliseconds."""
    return f"{number(1e3 * seconds)} ms" if seconds == seconds else ""


def span(values, show=number, join: str = " to ") -> str:
    """The smallest and the largest."""
    return join.join(dict.fromkeys((show(min(values)), show(max(values)))))


def percents(values) -> str:
    """The smallest and the largest, in per cent."""
    return span(values, lambda value: percent(value, "")) + " %"


def rms(values) -> str:
    """The root mean square of shares, in per cent."""
    return f"{100 * np.sqrt(np.mean(np.square(values))):.1f} %"


def the_cards() -> str:
    found = []
    for card in CARDS:
        rows, row = card.rows, card.rows.iloc[0]
        degrees = f"{rows.temperature_start_c.min():.0f} to {rows.temperature_end_c.max():.0f} °C"
        where = f"{row.last_level_cache_bytes / 2**20:.0f} MiB", f"{row.power_limit_w:.0f} W"
        idle = f"{span(rows.idle_power_w)} W"
        found.append((card.title, f"{row.measured_at:%Y-%m-%d}", len(rows), *where, idle, degrees))
    return table("GPU | measured | rows | L2 | limit | idle power | temperature", *found)


def estimates() -> str:
    found = []
    for card, model in PAIRS:
        cells = []
        for quantity, scale in (("time_s", 1e3), ("energy_j", 1)):
            for source in ("estimate", "end_to_end"):
                value, low, high = card.answer(model, source, quantity)
                cells.append(f"{number(scale * value, 4)} ± {number(scale * (high - low) / 2, 2)}")
            value, low, high = card.answer(model, "estimate", f"{quantity[:-2]}_relative_error")
            cells.append(f"{percent(value)} [{percent(low, '')}, {percent(high, '')}]")
        found.append((model, card.title, *cells, card.flags(model)))
    both = "estimate, {0} | end to end, {0} | difference"
    columns = f"{both.format('ms')} | {both.format('J')}"
    return table(f"model | GPU | {columns} | flags", *found)


def host_bound() -> str:
    found = []
    for card, model in APART:
        calls, whole = card.launching(model), card.end_to_end.loc[model]
        unmeasured = calls.tuple_id[calls.time_s.isna()].nunique()
        estimate = "none: its calls were not timed"
        if unmeasured:
            estimate = f"none: {unmeasured} of {calls.tuple_id.nunique()} tuples are unmeasured"
        elif len(calls):
            views = len(card.calls(model)) - len(calls)
            host_s = (calls.host_time_s + calls.call_overhead_s).sum()
            host_s += views * card.rows.view_call_overhead_s.median()
            waits_s = max(0, host_s - calls.time_s.sum())
            joules = calls.energy_j.sum() + card.rows.idle_power_w.mean() * waits_s
            time_s = calls.time_s.sum() + waits_s
            estimate = f"{ms(time_s)} ({percent(time_s / whole.time_s - 1)}), {number(joules)} J"
        graph = card.graphs.reindex([model]).iloc[0]
        measured = f"{ms(whole.time_s)}, {number(whole.energy_j)} J", ms(whole.host_time_s)
        graph = f"{ms(graph.time_s)}, {number(graph.energy_j)} J" if graph.notna().all() else ""
        found.append((model, card.title, estimate, *measured, graph, card.flags(model)))
    return table("model | GPU | estimate | end to end | its host | graph | flags", *found)


def graphs() -> str:
    found = []
    for card in CARDS:
        kernels = card.kernels.assign(s=card.kernels.calls * card.kernels.mean_us * 1e-6)
        kernels_s = kernels.groupby("model").s.sum()
        for model, graph in card.graphs.iterrows():
            calls = card.launching(model)
            total = calls[["time_s", "energy_j"]].sum(skipna=False, min_count=1)
            sums = total.time_s, total.time_s - calls.gap_s.fillna(card.gap_s).sum()
            sums = *sums, kernels_s.get(model, math.nan)
            times = [percent(each / graph.time_s - 1) for each in sums]
            energy = f"{number(graph.energy_j)} J", percent(total.energy_j / graph.energy_j - 1)
            found.append((model, card.title, ms(graph.time_s), *times, *energy))
    titles = "model | GPU | graph | operators | less gaps | kernels | graph | operators"
    return table(titles, *found)


def gaps() -> str:
    return bullets([
        f"{card.title}: {number(card.gap_s * 1e6)} µs (standard deviation "
        f"{number(card.rows.gap_s.std() * 1e6, 2)} µs, {card.rows.gap_s.count()} operators)."
        for card in CARDS
    ])  # fmt: skip


def in_context() -> str:
    found = []
    for card, model in [*PAIRS, *APART]:
        calls = card.launching(model)
        if calls.empty or calls.time_s.isna().any():
            continue
        calls["context_s"] -= card.events_s.mean()
        times = calls.set_index(["op", "tuple_id"])[["time_s", "context_s"]]
        total, by_op = times.sum(), times.groupby("op").sum().sort_values("context_s")[::-1]
        by_tuple = times.groupby("tuple_id").sum()
        unsigned_s = (by_tuple.time_s - by_tuple.context_s).abs().sum()
        large = by_op[by_op.context_s > 0.01 * total.context_s]
        by = [
            f"{row.Index} {percent(row.time_s / row.context_s - 1, '')}"
            for row in large.itertuples()
        ]
        net = percent(total.time_s / total.context_s - 1)
        unsigned = f"{100 * unsigned_s / total.context_s:.1f} %"
        found.append((model, card.title, ms(total.context_s), net, unsigned, ", ".join(by)))
    return table("model | GPU | in context | net | unsigned | by operator, %", *found)


def events() -> str:
    return bullets([
        f"{card.title}: {number(card.events_s.mean() * 1e6, 2)} µs "
        f"({span(card.events_s * 1e6, lambda x: number(x, 2))} µs)." for card in CARDS
    ])  # fmt: skip


def power_limit() -> str:
    cells: dict[str, dict[str, str]] = {}
    for card in CARDS:
        for row in card.rows[card.rows.capped].itertuples():
            half = number((row.power_ci_high_w - row.power_ci_low_w) / 2, 2)
            more = percent(row.power_w / row.window_w - 1)
            burst = (
                f"{row.power_w:.0f} ± {half} W ({more})" if row.power_is_of_burst else "no burst"
            )
            cells.setdefault(f"`{row.description}`", {})[card.title] = (
                f"{row.window_w:.0f}, {burst}"
            )
    titles = [card.title for card in CARDS]
    found = [
        (name, *map(own.get, titles, [""] * len(titles))) for name, own in sorted(cells.items())
    ]
    return table(f"operator | {' | '.join(titles)}", *found)


def capped_models() -> str:
    found = []
    for card, model in PAIRS:
        calls, (whole_j, _, _) = card.launching(model), card.answer(model, "end_to_end", "energy_j")
        capped = calls.capped.astype(bool)
        if capped.any():
            share = 100 * calls.time_s[capped].sum() / calls.time_s.sum()
            mean_j = calls.energy_j.mask(capped, calls.time_s * calls.window_w).sum()
            own = percent(calls.energy_j.sum() / whole_j - 1), percent(mean_j / whole_j - 1)
            found.append((model, card.title, f"{share:.0f} %", *own))
    titles = "model | GPU | capped rows, of its time | energy, bursts | energy, means of windows"
    return table(titles, *found)


def comparisons() -> str:
    return "\n\n".join(_comparison(CARDS[0], other) for other in CARDS[1:])


def _comparison(first: Card, other: Card) -> str:
    both = first.rows.join(other.rows.add_suffix("_of_other"), how="inner")
    ratios = [both[f"{name}_of_other"] / both[name] for name in ("time_s", "energy_j")]
    product, cache = both.op.str.contains(PRODUCTS), both.last_level_cache_bytes_of_other.max()
    kinds = {
        "`power_capped` on either": both.capped | both.capped_of_other,
        "below 5 µs": both.time_s < 5e-6,
        "convolution, linear, attention, from 0.1 ms": product & (both.time_s >= 1e-4),
        "convolution, linear, attention, shorter": product,
        f"others, moving more than {cache / 2**20:.0f} MiB": both.bytes > cache,
        "others, moving less": both.bytes <= cache,
    }
    kind = np.select(list(kinds.values()), list(kinds), "")
    found = []
    for name in kinds:
        own = [ratio[kind == name] for ratio in ratios]
        cells = [f"{x.median():.2f} [{span(x, lambda y: f'{y:.2f}', ', ')}]" for x in own if len(x)]
        found += [(name, len(own[0]), *cells)] if cells else []
    return table(f"operators | rows | {other.title} / {first.title}: time | energy", *found)


def variation() -> str:
    lines = []
    for card in CARDS:
        twice, eager = card.rows[card.rows.runs == 2], card.models.query("launch_mode == 'eager'")
        if len(twice):
            time = np.diff(np.log(np.vstack(list(twice.run_time_s)))).ravel()
            power = np.diff(np.log(np.vstack(list(twice.run_power_w))))[~twice.capped].ravel()
            lines.append(
                f"{card.title}, two runs of {len(twice)} operators: time differs by {rms(time)} "
                f"(root mean square; at most {100 * max(abs(time)):.1f} %), power by {rms(power)} "
                f"without those at the limit, of which {percent(power.mean())} is common to all."
            )
        models = eager.groupby("model").filter(lambda runs: len(runs) > 1).groupby("model")
        apart = models[["time_s", "energy_j"]].agg(lambda x: math.log(x.max() / x.min()))
        each = [
            f"{row.Index} {100 * row.time_s:.1f} and {100 * row.energy_j:.1f} %"
            for row in apart.itertuples()
        ]
        half = (card.rows.time_ci_high_s - card.rows.time_ci_low_s) / card.rows.time_s / 2
        lines.append(
            f"{card.title}: intervals of time are ± {100 * half.median():.1f} % (median of rows)."
        )
        wholes = f"{card.title}, two runs end to end, time and energy: {', '.join(each)}."
        lines.append(wholes if each else f"{card.title}: one run of everything.")
        pairs = identical_pairs(card.rows)
        differ = [
            f"{below} 5 µs by up to {100 * own.differs.max():.1f} %"
            for below, own in (("below", pairs[pairs.s < 5e-6]), ("above", pairs[pairs.s >= 5e-6]))
            if len(own)
        ]
        if pairs.empty:
            continue
        lines.append(
            f"{card.title}: {len(pairs)} pairs of identical device work differ, "
            f"{' and '.join(differ)}; intervals of time overlap in {pairs.time_s.sum()}, of energy "
            f"in {pairs.energy_j.sum()}."
        )
    return bullets(lines)


def identical_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of contiguous elementwise operators with as many elements in other shapes."""
    alike: dict[str, list] = {}
    for row in rows[rows.op.isin(ELEMENTWISE)].itertuples():
        shapes = re.compile(r'"shape":\[([\d,]+)\]')
        size = lambda found: str(math.prod(map(int, found[1].split(","))))  # noqa: E731
        alike.setdefault(shapes.sub(size, row.canonical_json), []).append(row)
    found = []
    for a, b in itertools.chain(*(itertools.combinations(each, 2) for each in alike.values())):
        overlap = {
            name: max(getattr(a, f"{n}_low_{u}"), getattr(b, f"{n}_low_{u}"))
            <= min(getattr(a, f"{n}_high_{u}"), getattr(b, f"{n}_high_{u}"))
            for name, n, u in (("time_s", "time_ci", "s"), ("energy_j", "energy_ci", "j"))
        }
        differs = max(a.time_s, b.time_s) / min(a.time_s, b.time_s) - 1
        found.append({"s": min(a.time_s, b.time_s), "differs": differs, **overlap})
    return pd.DataFrame(found, columns=["s", "differs", "time_s", "energy_j"])


def sensors() -> str:
    lines = []
    for card in CARDS:
        reading = card.sensor["readings"]["nvml_power_instant"]
        one = card.rows[(card.rows.power_segments == 1) & ~card.rows.capped]
        apart = one.counter_power_w / one.window_w - 1
        noise = card.rows.power_sample_w.map(lambda w: np.std(w) / np.mean(w)).median()
        lines.append(
            f"{card.title}: readings change every {1e3 * reading['refresh_s']:.0f} ms, the counter "
            f"every {1e3 * card.sensor['counter']['refresh_s']:.0f} ms; {averaging(card.sensor)}. "
            f"Counter less readings, {len(one)} windows: {percent(apart.median())} in the median, "
            f"{percents(apart)}. Readings of a row vary by {100 * noise:.1f} % (median)."
        )
    return bullets(lines)


def averaging(sensor: dict) -> str:
    """The averaging windows that fit the recorded random load about as well as the best."""
    if "recording" not in sensor:
        return "the load that would show their averaging was not recorded"
    changes = np.array(sensor["recording"]["changes_s_w"]["nvml_power_instant"])
    start, end = np.array(sensor["recording"]["busy_s"]).T
    at, watts = changes[changes[:, 0] > 1.7].T  # until then, they contain load before the recording
    at, fits = at[:, None], {}
    for window in np.arange(5, 101, 5) / 1e3:
        busy_s = np.clip(np.minimum(at, end) - np.maximum(at - window, start), 0, None).sum(1)
        fits[window] = np.corrcoef(busy_s, watts)[0, 1] ** 2
    good = [window for window, fit in fits.items() if fit > max(fits.values()) - 0.001]
    low, high = (1e3 * each for each in (good[0], good[-1]))
    return f"they average over {low:.0f} to {high:.0f} ms (R² {max(fits.values()):.3f})"


def waiting() -> str:
    """From power of launches and replays of the same work: its own, and that of a pause."""
    lines = []
    for card in (card for card in CARDS if card.waiting is not None):
        found = []
        for _, loads in card.waiting.groupby("operator", sort=False):
            if loads["flags"].str.contains("power_capped", na=False).any():
                continue
            if len(loads) != 2:
                continue
            slow, fast = loads.sort_values("time_in_window_us", ascending=False).itertuples()
            s, f = slow.time_in_window_us, fast.time_in_window_us
            # Energy of an iteration = work + pause x power; the work is the same.
            pause = (slow.power_in_window_w * s - fast.power_in_window_w * f) / (s - f)
            unsure = 0.01 * math.hypot(slow.power_in_window_w * s, fast.power_in_window_w * f)
            if s - f > 3:
                at_pace = slow.power_at_timed_pace_w / fast.power_at_timed_pace_w - 1
                idle = (slow.idle_power_w + fast.idle_power_w) / 2
                found.append((s - f, pause, idle, unsure / (s - f), at_pace))
        if not found:
            continue
        pauses, watts, idle, unsure, agree = zip(*found, strict=True)
        lines.append(
            f"{card.title}: in pauses of {span(pauses, lambda x: number(x, 2))} µs between "
            f"launches of {len(found)} operators, it drew {span(watts)} W (± "
            f"{number(max(unsure), 1)} W or less, if each power is off by 1 %). Idle power was "
            f"{span(idle)} W. Power at the timed pace, from launches and from replays, agrees "
            f"within {100 * max(map(abs, agree)):.1f} %."
        )
    return bullets(lines)


def peers() -> str:
    found = []
    for card in (card for card in CARDS if card.peers is not None):
        for operator, tools in card.peers.groupby("operator", sort=False):
            tools = tools.set_index("peer")
            cells = [f"`{operator.split('(')[0]}`, {number(tools.time_s['opcost'] * 1e6)} µs"]
            for peer in (
                "torch.utils.benchmark",
                "triton.testing.do_bench",
                "loop beside nvidia-smi",
            ):
                cells.append(percent(tools.time_differs[peer]))
            found.append((card.title, *cells, percent(tools.energy_differs[peer])))
    tools = "torch.utils.benchmark | do_bench | loop with nvidia-smi: time | its energy"
    return table(f"GPU | operator | {tools}", *found)


def limits() -> str:
    models = sorted({model for _, model in PAIRS})
    time, energy = (
        percents(
            [card.answer(model, "estimate", f"{name}_relative_error")[0] for card, model in PAIRS]
        )
        for name in ("time", "energy")
    )
    hosts = [f"{model} ({card.title})" for card, model in APART]
    titles = ", ".join(card.title for card in CARDS)
    return bullets([
        f"[Real GPUs](docs/explanation/real_gpus.md), {titles}: the estimate of time is off by "
        f"{time}, of energy by {energy}, for {', '.join(models)}, flagged measurements included. "
        "Errors of operators partly cancel; another mix of operators may be further off. Not "
        f"counted, as the host sets the pace or an operator is unmeasured: {', '.join(hosts)}."
    ])  # fmt: skip


def rows_of(card: Card) -> str:
    """The state of a card's rows, for the README of the data."""
    rows = card.rows
    counted = Counter(itertools.chain(*rows["flags"]))
    flagged = ", ".join(f"{count} `{flag}`" for flag, count in counted.most_common())
    runs = ", ".join(
        f"{count} of {times} run{'s' * (times > 1)}"
        for times, count in rows.runs.value_counts().items()
    )
    return bullets([
        f"**Rows**: {runs}; {rows.temperature_start_c.min():.0f} to "
        f"{rows.temperature_end_c.max():.0f} °C. {(rows['flags'].str.len() == 0).sum()} have no "
        f"flag; {flagged}."
    ])  # fmt: skip


BLOCKS = {
    "cards": the_cards, "estimates": estimates, "host-bound": host_bound, "graphs": graphs,
    "gaps": gaps, "in context": in_context, "events": events, "power limit": power_limit,
    "capped models": capped_models, "comparisons": comparisons, "variation": variation,
    "sensors": sensors, "waiting": waiting, "peers": peers, "limits": limits,
    **{f"rows of {card.name}": lambda card=card: rows_of(card) for card in CARDS},
}  # fmt: skip


def filled(page: str) -> str:
    """A page with all of its blocks made anew."""
    block = re.compile(r"(<!-- from data/reference: (.+?) -->\n).*?<!-- end -->", re.DOTALL)
    return block.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n<!-- end -->", page)


if __name__ == "__main__":
    for name in PAGES:
        path = REPOSITORY / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
