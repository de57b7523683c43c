"""Write the figures on measured GPUs from data/reference: `python docs/explanation/real_gpus.py`.

`make docs` runs it. It fills the blocks between `<!-- from data/reference: NAME -->` and
`<!-- end -->` in `PAGES`; each block is a function, named in `BLOCKS`. A test fails if a block
differs. A card is a folder of data/reference with `models.parquet`, beside the rows of its
operators in `<folder>_*.parquet`. Unknown numbers are empty.
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
EXPLANATION = "docs/explanation/real_gpus.md", "docs/explanation/real_gpus_tables.md"
PAGES = ("README.md", "data/reference/README.md", *EXPLANATION)

CLAMP, ADD = "launch_clamp_scalar", "CUDAFunctor_add"
KERNELS = {"relu_": CLAMP, "hardtanh_": CLAMP, "add": ADD, "add_": ADD}
KERNELS |= {"gelu": "GeluCUDAKernel", "batch_norm": "bn_fw_inf"}
"""Operators of one kernel -> what its name in kernels.csv contains."""
ELEMENTWISE = "relu|hardtanh|gelu|silu|sigmoid|add_?$|mul_?$"
PRODUCTS = "conv|linear|mm|attention"
VIEW_S = 1e-6
"""Calls in context without a row that take less are views: they launch no kernel."""
COSTS = ["time_s", "energy_j"]


class Card:
    """The files of one card. `rows` are its operators, by tuple id."""

    def __init__(self, name: str, file: Path) -> None:
        self.name, self.title, self.file, folder = name, name.upper(), file, FOLDER / name
        self.sensor = json.loads((folder / "sensor.json").read_text(encoding="utf-8"))
        self.models = pd.read_parquet(folder / "models.parquet").query("status == 'ok'")
        answers = pd.read_parquet(folder / "answers.parquet").query("part == 'model'")
        self.answers = answers.set_index(["model", "source", "quantity"])
        self.csv = {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}
        self.kernels = self.csv["kernels"].query("where == 'GPU'")
        rows = pd.read_parquet(file).set_index("tuple_id").query("status == 'ok'")
        rows["op"] = rows.operator.str.split(".").str[1]
        rows["capped"] = rows["flags"].map(lambda flags: "power_capped" in flags)
        rows["window_w"] = rows.power_sample_w.map(np.mean)
        # Short operators are replayed for power, without the gaps of launches. A waiting GPU is
        # taken to draw idle power, so power of the replay and at the timed pace gives its pace.
        pace = (rows.power_w - rows.idle_power_w) / (rows.window_w - rows.idle_power_w)
        rows["pace"] = rows.power_pace.astype(float).fillna(pace)
        replayed = (rows.pace < 0.99) & (rows.time_s < 30e-6) & ~rows.capped
        rows["gap_s"] = (rows.time_s * (1 - rows.pace)).where(replayed)
        self.rows, self.gap_s = rows, rows.gap_s.mean()
        by_mode = self.models.groupby(["launch_mode", "model"])
        means = by_mode[[*COSTS, "host_time_s", "power_w"]].mean()
        self.end_to_end, self.graphs = means.loc["eager"], means.loc["graph"]
        times = self.end_to_end
        estimates = self.answers.value.reindex([(m, "estimate", "time_s") for m in times.index])
        apart = (times.host_time_s >= 0.95 * times.time_s) | estimates.isna().to_numpy()
        self.estimated, self.apart = times.index[~apart], times.index[apart]

    def answer(self, model: str, source: str, quantity: str) -> list[float]:
        """A number with its interval."""
        return self.answers.loc[(model, source, quantity), ["value", "low", "high"]].tolist()

    def runs(self, model: str, launch_mode: str = "eager") -> pd.DataFrame:
        """Its end-to-end runs."""
        return self.models.query("model == @model and launch_mode == @launch_mode")

    def flags(self, model: str) -> str:
        """Flags of its end-to-end runs."""
        return ", ".join(sorted(set().union(*self.runs(model)["flags"]))) or "none"

    def calls(self, model: str) -> pd.DataFrame:
        """Its calls, with `context_s` (mean over runs), and the rows of those that have one."""
        runs = self.runs(model).dropna(subset=["call_time_s"])
        times = {"context_s": np.mean(list(runs.call_time_s), axis=0)} if len(runs) else {}
        ids = runs.call_tuple_id.iloc[0] if len(runs) else []
        calls = pd.DataFrame({"tuple_id": ids, **times}, columns=["tuple_id", "context_s"])
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
            if 0 < len(calls) == kernels.calls.sum():
                kernel_s = (kernels.calls * kernels.mean_us).sum() * 1e-6 / len(calls)
                found[model, op] = calls.context_s.mean() - kernel_s - self.gap_s
        return pd.Series(found)

    def in_context(self, model: str) -> pd.DataFrame:
        """Its launching calls, without the time of events; empty if a row is missing."""
        calls = self.launching(model)
        calls["context_s"] -= self.events_s.mean()
        return calls if calls.time_s.notna().all() else calls[:0]


def cards() -> list[Card]:
    """The cards, by name."""
    folders = sorted(path.parent.name for path in FOLDER.glob("*/models.parquet"))
    files = {}
    for file in FOLDER.glob("*.parquet"):
        own = [name for name in folders if file.name.startswith(f"{name}_")]
        files |= {max(own, key=len): file} if own else {}
    return [Card(name, files[name]) for name in folders]


CARDS = cards()
PAIRS = [(card, model) for card in CARDS for model in card.estimated]
APART = [(card, model) for card in CARDS for model in card.apart]
"""The host sets the pace, or there is no estimate."""


def table(header: str, rows: list[tuple]) -> str:
    titles = header.split(" | ")
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in [titles, *rows]]
    return "\n".join([head, "|---" * len(titles) + "|", *body])


def bullet(line: str) -> str:
    """An entry of a list. No line ends between a number and its unit."""
    tied = re.sub(r"(?<=\d) (?=[%°])", "\0", f"- {' '.join(line.split())}")
    return textwrap.fill(tied, 120, subsequent_indent="  ").replace("\0", " ")


def number(value: float, digits: int = 3, unit: str = "") -> str:
    if math.isnan(value):
        return ""
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - magnitude)}f}{unit}"


def ms(seconds: float) -> str:
    return number(1e3 * seconds, unit=" ms")


def percent(share: float, unit: str = " %", sign: str = "+") -> str:
    """Of two digits or to a tenth."""
    digits = 0 if abs(share) > 0.0995 else 1
    return "" if math.isnan(share) else f"{round(100 * share, digits) + 0.0:{sign}.{digits}f}{unit}"


def span(values, show=number, join: str = " to ") -> str:
    """The smallest and the largest."""
    return join.join(dict.fromkeys((show(min(values)), show(max(values)))))


def percents(values) -> str:
    return span(values, lambda value: percent(value, "")) + " %"


def degrees(card: Card) -> str:
    return (
        f"{card.rows.temperature_start_c.min():.0f} to {card.rows.temperature_end_c.max():.0f} °C"
    )


def the_cards() -> str:
    found = []
    for card in CARDS:
        row, idle = card.rows.iloc[0], f"{span(card.rows.idle_power_w)} W"
        board = f"{row.last_level_cache_bytes / 2**20:.0f} MiB", f"{row.power_limit_w:.0f} W"
        day = f"{row.measured_at:%Y-%m-%d}"
        found.append((card.title, day, len(card.rows), *board, idle, degrees(card)))
    return table("GPU | measured | rows | L2 | limit | idle power | temperature", found)


def estimates() -> str:
    found = []
    for card, model in PAIRS:
        cells = []
        for quantity, scale in (("time_s", 1e3), ("energy_j", 1)):
            for source in ("estimate", "end_to_end"):
                value, low, high = np.multiply(card.answer(model, source, quantity), scale)
                cells.append(f"{number(value, 4)} ± {number((high - low) / 2, 2)}")
            value, low, high = card.answer(model, "estimate", f"{quantity[:-2]}_relative_error")
            cells.append(f"{percent(value)} [{percent(low, '')}, {percent(high, '')}]")
        found.append((model, card.title, *cells, card.flags(model)))
    titles = "estimate, {0} | end to end, {0} | difference"
    return table(f"model | GPU | {titles.format('ms')} | {titles.format('J')} | flags", found)


def host_bound() -> str:
    found = []
    for card, model in APART:
        calls, whole = card.launching(model), card.end_to_end.loc[model]
        estimate = "none: its calls were not timed"
        if unmeasured := calls.tuple_id[calls.time_s.isna()].nunique():
            estimate = f"none: {unmeasured} of {calls.tuple_id.nunique()} tuples are unmeasured"
        elif len(calls):
            views = len(card.calls(model)) - len(calls)
            host_s = (calls.host_time_s + calls.call_overhead_s).sum()
            host_s += views * card.rows.view_call_overhead_s.median()
            waits_s = max(0, host_s - calls.time_s.sum())
            joules = calls.energy_j.sum() + card.rows.idle_power_w.mean() * waits_s
            time_s = calls.time_s.sum() + waits_s
            differ = percent(time_s / whole.time_s - 1), percent(joules / whole.energy_j - 1)
            estimate = f"{ms(time_s)} ({differ[0]}), {number(joules)} J ({differ[1]})"
        graph = card.graphs.reindex([model]).iloc[0]
        graph = f"{ms(graph.time_s)}, {number(graph.energy_j)} J" if graph.time_s > 0 else ""
        measured = f"{ms(whole.time_s)}, {number(whole.energy_j)} J", ms(whole.host_time_s)
        found.append((model, card.title, estimate, *measured, graph, card.flags(model)))
    return table("model | GPU | estimate | end to end | its host | graph | flags", found)


def graphs() -> str:
    found = []
    for card in CARDS:
        kernels_s = (card.kernels.calls * card.kernels.mean_us * 1e-6).groupby(card.kernels.model)
        for model, graph in card.graphs.iterrows():
            calls = card.launching(model)
            time_s, energy_j = calls[COSTS].sum(skipna=False, min_count=1)
            less_s = time_s - calls.gap_s.fillna(card.gap_s).sum()
            sums = time_s, less_s, kernels_s.sum().get(model, math.nan)
            times = [percent(each / graph.time_s - 1) for each in sums]
            joules = number(graph.energy_j, unit=" J"), percent(energy_j / graph.energy_j - 1)
            found.append((model, card.title, ms(graph.time_s), *times, *joules))
    titles = "model | GPU | graph | operators | less gaps | kernels | graph | operators"
    return table(titles, found)


def powers() -> str:
    found = []
    for card, model in PAIRS:
        cells = []
        for mode in ("eager", "graph"):
            runs = card.runs(model, mode)
            half = (runs.power_ci_high_w - runs.power_ci_low_w) / 2
            cells.append(
                ", ".join(f"{w:.0f} ± {h:.0f} W" for w, h in zip(runs.power_w, half, strict=True))
            )
        found.append((model, card.title, *cells))
    return table("model | GPU | eager | graph", found)


def gaps() -> str:
    found = []
    for card in CARDS:
        gap, events = card.rows.gap_s * 1e6, card.events_s * 1e6
        own = f"{gap.mean():.2f} µs", f"{gap.std():.2f} µs", gap.count()
        found.append(
            (card.title, *own, f"{events.mean():.2f} µs", f"{span(events, '{:.2f}'.format)} µs")
        )
    return table("GPU | gap | standard deviation | operators | events | range", found)


def in_context() -> str:
    found = []
    for card, model in [*PAIRS, *APART]:
        times = card.in_context(model).set_index(["op", "tuple_id"])[["time_s", "context_s"]]
        if times.empty:
            continue
        total, ops = times.sum(), times.groupby("op").sum().sort_values("context_s")[::-1]
        tuples = times.groupby("tuple_id").sum()
        net, unsigned = total.time_s - total.context_s, (tuples.time_s - tuples.context_s).abs()
        ops = (ops.time_s / ops.context_s - 1)[ops.context_s > 0.01 * total.context_s]
        by = ", ".join(f"{op} {percent(differs, '')}" for op, differs in ops.items())
        shares = percent(net / total.context_s), percent(unsigned.sum() / total.context_s, sign="")
        found.append((model, card.title, ms(total.context_s), *shares, by))
    return table("model | GPU | in context | net | unsigned | by operator, %", found)


def by_traffic() -> str:
    """Tuples without matrix products, by what a call moves."""
    found = []
    for card in CARDS:
        calls = pd.concat([card.in_context(model) for model in card.estimated])
        calls = calls[~calls.op.str.contains(PRODUCTS)].groupby("tuple_id")
        differs = calls.time_s.sum() / calls.context_s.sum() - 1
        share = calls.bytes.first() / card.rows.last_level_cache_bytes.iloc[0]
        parts = pd.cut(share, [0, 0.25, 1, math.inf], labels=["up to L2 / 4", "up to L2", "more"])
        for part, own in differs.groupby(parts, observed=True):
            quartiles = span(own.quantile([0.25, 0.75]), lambda x: percent(x, "")) + " %"
            found.append((card.title, part, len(own), percent(own.median()), quartiles))
    return table("GPU | moved by a call | tuples | median | quartiles", found)


def power_limit() -> str:
    cells: dict[str, dict[str, str]] = {}
    for card in CARDS:
        for row in card.rows[card.rows.capped].itertuples():
            half, more = (row.power_ci_high_w - row.power_ci_low_w) / 2, row.power_w / row.window_w
            burst = f"{row.power_w:.0f} ± {half:.0f} W ({percent(more - 1)})"
            own = cells.setdefault(f"`{row.description}`", {})
            own[card.title] = (
                f"{row.window_w:.0f}, {burst if row.power_is_of_burst else 'no burst'}"
            )
    titles = [card.title for card in CARDS]
    found = [(name, *(own.get(each, "") for each in titles)) for name, own in sorted(cells.items())]
    return table(f"operator | {' | '.join(titles)}", found)


def capped_models() -> str:
    found = []
    for card, model in PAIRS:
        calls, (whole_j, _, _) = card.launching(model), card.answer(model, "end_to_end", "energy_j")
        capped = calls.capped.astype(bool)
        share = calls.time_s[capped].sum() / calls.time_s.sum()
        window_j = calls.energy_j.mask(capped, calls.time_s * calls.window_w).sum()
        own = [percent(joules / whole_j - 1) for joules in (calls.energy_j.sum(), window_j)]
        found += [(model, card.title, percent(share, sign=""), *own)] if share else []
    titles = "model | GPU | share of time | energy, bursts | energy, means of windows"
    return table(titles, found)


def comparisons() -> str:
    """Each card against the first."""
    return "\n\n".join(comparison(CARDS[0], other) for other in CARDS[1:])


def comparison(first: Card, other: Card) -> str:
    both = first.rows.join(other.rows.add_suffix("_of_other"), how="inner")
    ratios = [both[f"{name}_of_other"] / both[name] for name in COSTS]
    product, cache = both.op.str.contains(PRODUCTS), both.last_level_cache_bytes_of_other.max()
    kinds = {
        "`power_capped` on either": both.capped | both.capped_of_other,
        "below 5 µs": both.time_s < 5e-6,
        "convolution, linear, attention, from 0.1 ms": product & (both.time_s >= 1e-4),
        "convolution, linear, attention, shorter": product,
        f"others, moving more than {cache / 2**20:.0f} MiB": both.bytes > cache,
        "others, moving less": both.bytes <= cache,
    }
    kind, found = np.select(list(kinds.values()), list(kinds), ""), []
    for name in filter(set(kind).__contains__, kinds):
        own = [ratio[kind == name] for ratio in ratios]
        cells = [f"{x.median():.2f} [{span(x, '{:.2f}'.format, ', ')}]" for x in own]
        found.append((name, len(own[0]), *cells))
    return table(f"operators | rows | {other.title} / {first.title}: time | energy", found)


def variation() -> str:
    found = []
    for card in CARDS:
        twice = card.rows[card.rows.runs == 2]
        time = twice.run_time_s.map(lambda runs: math.log(runs[1] / runs[0]))
        power = twice.run_power_w.map(lambda runs: math.log(runs[1] / runs[0]))
        power = power.mask(twice.capped)
        kinds = {"operators, two runs": pd.DataFrame({"time_s": time, "energy_j": time + power})}
        for model, runs in card.models.query("launch_mode == 'eager'").groupby("model"):
            apart = np.log(runs[COSTS].max() / runs[COSTS].min()).to_frame().T
            kinds[f"{model} end to end, two runs"] = apart[: len(runs) - 1]
        pairs = identical_pairs(card.rows)
        kinds["identical work, below 5 µs"] = pairs[pairs.s < 5e-6]
        kinds["identical work, 5 µs and more"] = pairs[pairs.s >= 5e-6]
        for name, own in kinds.items():
            cells = [f"{percent(np.sqrt((own[x] ** 2).mean()), sign='')}" for x in COSTS]
            cells.insert(1, percent(own.time_s.abs().max(), sign=""))
            overlap = own.overlap.sum() if "overlap" in own else ""
            found += [(card.title, name, len(own), *cells, overlap)] if len(own) else []
        half = (card.rows.time_ci_high_s - card.rows.time_ci_low_s) / card.rows.time_s / 2
        half_j = (card.rows.energy_ci_high_j - card.rows.energy_ci_low_j) / card.rows.energy_j / 2
        medians = [percent(x.median(), sign="") for x in (half, half_j)]
        found.append((card.title, "interval ± (median)", len(half), medians[0], "", medians[1], ""))
    titles = "GPU | what | number | time | at most | energy | overlap in time"
    return table(titles, found)


def identical_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of contiguous elementwise operators with as many elements in other shapes."""
    rows = rows[rows.op.str.contains(ELEMENTWISE)]
    elements = rows.canonical_json.str.replace(
        r'"shape":\[([\d,]+)\]',
        lambda found: str(math.prod(map(int, found[1].split(",")))),
        regex=True,
    )
    found = []
    for _, alike in rows.groupby(elements):
        for a, b in itertools.combinations(alike.itertuples(), 2):
            low, high = (
                max(a.time_ci_low_s, b.time_ci_low_s),
                min(a.time_ci_high_s, b.time_ci_high_s),
            )
            apart = {name: math.log(getattr(a, name) / getattr(b, name)) for name in COSTS}
            found.append({"s": min(a.time_s, b.time_s), **apart, "overlap": low <= high})
    return pd.DataFrame(found, columns=["s", *COSTS, "overlap"])


def sensors() -> str:
    found = []
    for card in CARDS:
        every = card.sensor["readings"]["nvml_power_instant"], card.sensor["counter"]
        one = card.rows[(card.rows.power_segments == 1) & ~card.rows.capped]
        apart = one.counter_power_w / one.window_w - 1
        noise = card.rows.power_sample_w.map(lambda w: np.std(w) / np.mean(w)).median()
        cells = f"{percent(apart.median())} ({percents(apart)})", percent(noise, sign="")
        refresh = [f"{1e3 * each['refresh_s']:.0f} ms" for each in every]
        fitted = percent(every[0].get("noise_relative_sd", math.nan), sign="")
        found.append((card.title, *refresh, averaging(card.sensor), len(one), *cells, fitted))
    titles = "GPU | readings every | counter every | averaging | windows | counter less readings"
    return table(f"{titles} | noise | in `sensor.json`", found)


def averaging(sensor: dict) -> str:
    """The averaging windows that fit the recorded random load about as well as the best."""
    if "recording" not in sensor:
        return "load not recorded"
    changes = np.array(sensor["recording"]["changes_s_w"]["nvml_power_instant"])
    start, end = np.array(sensor["recording"]["busy_s"]).T
    at, watts = changes[changes[:, 0] > 1.7].T  # until then, they contain load before the recording
    fits = {}
    for window_s in np.arange(5, 101, 5) / 1e3:
        busy = np.minimum(at[:, None], end) - np.maximum(at[:, None] - window_s, start)
        fits[window_s] = np.corrcoef(busy.clip(0).sum(1), watts)[0, 1] ** 2
    good = [1e3 * window_s for window_s, fit in fits.items() if fit > max(fits.values()) - 0.001]
    return f"{span(good, '{:.0f}'.format)} ms (R² {max(fits.values()):.3f})"


def waiting() -> str:
    """Energy of an iteration = work + pause x power: two loads of the same work give the power."""
    found = []
    for card in CARDS:
        for name, loads in card.csv.get("waiting", pd.DataFrame({"operator": []})).groupby(
            "operator"
        ):
            slow, fast = loads.set_index("load").reindex(["launches", "replays"]).itertuples()
            s, f = slow.time_in_window_us, fast.time_in_window_us
            if s - f > 3 and not loads["flags"].str.contains("power_capped", na=False).any():
                joules = slow.power_in_window_w * s, fast.power_in_window_w * f
                watts, half = (
                    (joules[0] - joules[1]) / (s - f),
                    0.01 * math.hypot(*joules) / (s - f),
                )
                pause = f"{s - f:.1f} µs", f"{watts:.0f} ± {half:.0f} W"
                idle = f"{(slow.idle_power_w + fast.idle_power_w) / 2:.0f} W"
                pace = f"{slow.power_at_timed_pace_w:.0f}, {fast.power_at_timed_pace_w:.0f} W"
                found.append((card.title, f"`{name}`", *pause, idle, pace))
    return table("GPU | operator | pause | power in it | idle power | at the timed pace", found)


def peers() -> str:
    found = []
    for card in CARDS:
        for operator, tools in card.csv["peers"].groupby("operator", sort=False):
            tools = tools.set_index("peer")
            name = f"`{operator.split('(')[0]}`, {number(tools.time_s['opcost'] * 1e6)} µs"
            differs = tools.time_differs.drop("opcost").map(percent)
            joules = tools.energy_differs.dropna().map(percent)
            found.append((card.title, name, ", ".join(differs), ", ".join(joules)))
    tools = ", ".join(CARDS[0].csv["peers"].peer.unique()[1:])
    return table(f"GPU | operator | time: {tools} | energy: the last", found)


def limits() -> str:
    time, energy = (
        {pair: pair[0].answer(pair[1], "estimate", f"{name}_relative_error")[0] for pair in PAIRS}
        for name in ("time", "energy")
    )
    sure = [energy[card, m] for card, m in PAIRS if "power_not_converged" not in card.flags(m)]
    return bullet(
        f"[Real GPUs]({EXPLANATION[0]}), {', '.join(card.title for card in CARDS)}: the estimate "
        f"of time is off by {percents(time.values())}, of energy by {percents(energy.values())} "
        f"({percents(sure)} where measured power converged), for "
        f"{', '.join(sorted({model for _, model in PAIRS}))}. Errors of operators partly cancel; "
        "another mix of operators may be further off. Not counted, as the host sets the pace or an "
        f"operator is unmeasured: {', '.join(f'{model} ({card.title})' for card, model in APART)}."
    )


def rows_of(card: Card) -> str:
    """The state of a card's rows, for the README of the data."""
    flags = card.rows["flags"]
    counted = Counter(itertools.chain(*flags)).most_common()
    flagged = ", ".join(f"{count} are `{flag}`" for flag, count in counted)
    runs = sorted(Counter(card.rows.runs).items())
    return bullet(
        f"**Rows**: {', '.join(f'{count} of {n} run' + 's' * (n > 1) for n, count in runs)}. "
        f"{degrees(card)}. {(flags.map(len) == 0).sum()} have no flag, {flagged}."
    )


BLOCKS = {
    "cards": the_cards, "estimates": estimates, "host-bound": host_bound, "graphs": graphs,
    "in context": in_context, "limits": limits, "gaps": gaps, "by traffic": by_traffic,
    "powers": powers, "power limit": power_limit, "capped models": capped_models,
    "comparisons": comparisons, "variation": variation, "sensors": sensors, "waiting": waiting,
    "peers": peers,
    **{f"rows of {card.name}": lambda card=card: rows_of(card) for card in CARDS},
}  # fmt: skip


def filled(page: str) -> str:
    """A page with all of its blocks made anew."""
    block = re.compile(r"(<!-- from data/reference: (.+?) -->\n).*?<!-- end -->", re.DOTALL)
    return block.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n<!-- end -->", page)


if __name__ == "__main__":
    for path in map(REPOSITORY.joinpath, PAGES):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
