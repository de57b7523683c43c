"""The comparison as text: a first screen that answers, and the details behind it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from opcost.costs.breakdown import Part, breakdown, largest_text, shares_text
from opcost.costs.caveats import caveats, precision_missed, variation_is_much
from opcost.costs.headline import cost_cells
from opcost.costs.host import waits_of
from opcost.costs.phases import phase_lines
from opcost.costs.terms import Row
from opcost.costs.trust import ALWAYS_SHOWN, TRUST_MEANING, trust_cells, trust_in_all
from opcost.groups import grouped
from opcost.rows.flags import DISTURBED, FLAGS, POWER_CAPPED, THROTTLED
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.study import SUSTAINED
from opcost.text import (
    counted,
    fitted,
    percent,
    shortened,
    some,
    table_of,
    width,
    with_meaning_of_noise,
    with_values,
    wrapped,
)
from opcost.tuples.model_table import not_extracted

_COSTLIEST, _LARGEST = 5, 3
_NAMED = 3
_LONGEST = 240
_END = "±: half of the 95 % interval. Details: opcost run --details, or results/details.txt"
_ACT_ON = (DISTURBED, THROTTLED, POWER_CAPPED)
"""Flags after which a reader measures again, or compares with care."""


def first_screen(
    comparison: Sequence[Row],
    shares: Sequence[Row],
    refused: Mapping[str, str] | None = None,
    further: Iterable[Sequence[str]] = (),
) -> str:
    """What each model costs on each target, where it goes, whether to trust it, and what to act on;
    then what else was asked for, and refused models with their reasons.
    """
    parts: list[list[str]] = []
    if comparison:
        parts += [wrapped(_targets(comparison)), _costs(comparison)]
        parts += [_breakdowns(comparison, shares)]
        parts += [wrapped(shortened(line, _LONGEST) for line in _to_act_on(comparison))]
    parts += [[*lines] for lines in further]
    parts += [not_extracted(refused)] if refused else []
    parts += [wrapped([_END])] if comparison else []
    return with_meaning_of_noise("\n\n".join("\n".join(lines) for lines in parts if lines))


def details(
    comparison: Sequence[Row], shares: Sequence[Row], in_context: Sequence[Row] = ()
) -> str:
    """For each target: the costliest operators, estimates beside end-to-end measurements with what
    makes up their intervals, phases of training, waits for the host, and all caveats.
    """
    parts = []
    for target in dict.fromkeys(row["target"] for row in comparison):
        here, shared, timed = (
            [row for row in rows if row["target"] == target]
            for rows in (comparison, shares, in_context)
        )
        parts.append("\n".join([f"Details of target {target}", *_details(here, shared, timed)]))
    return with_meaning_of_noise("\n\n".join(parts))


def _targets(comparison: Sequence[Row]) -> Iterator[str]:
    for target in dict.fromkeys(row["target"] for row in comparison):
        rows = [row for row in comparison if row["target"] == target]
        dtypes = {row["dtype"] for row in rows}
        shared = [str(dtype) for dtype in dtypes if dtype and len(dtypes) == 1]
        about = [rows[0]["device_name"], f"torch {rows[0]['torch_version']}", *shared]
        about += ["sustained operation"] if rows[0]["operation"] == SUSTAINED else []
        yield f"Target {target}: {', '.join(map(str, about))}"


def _costs(comparison: Sequence[Row]) -> list[str]:
    """A table of models; those of several targets side by side."""
    several_dtypes = len({row["dtype"] for row in comparison}) > 1
    titles = ["model", *_target_title(comparison), "inputs", *(["dtype"] if several_dtypes else [])]
    rows = _by_model(comparison)
    cells = [
        {title: row[title] or "-" for title in titles} | costs
        for row, costs in zip(rows, cost_cells(rows), strict=True)
    ]
    left = len(titles)
    return fitted(cells, ("time/sample", "inputs", "energy/sample", "samples/s"), left)


def _breakdowns(comparison: Sequence[Row], shares: Sequence[Row]) -> list[str]:
    """A table of where the time goes, and the trust in it."""
    cells = [
        {
            **{title: row[title] for title in ("model", *_target_title(comparison))},
            "where the time goes": _goes(row, _parts(row, shares, TIME)),
            "trust": str(trust_in_all(row)),
        }
        for row in _by_model(comparison)
    ]
    lines = table_of(cells, left=len(cells[0]))
    if max(map(len, lines)) <= width():
        return lines
    return wrapped(
        f"{shortened(' on '.join(names))}: {goes}; {trust}"
        for *names, goes, trust in map(dict.values, cells)
    )


def _goes(row: Row, parts: Sequence[Part]) -> str:
    """The largest parts; a dash for an incomplete estimate, whose shares would mislead."""
    partial = row[TIME.of("estimate").value] is None
    operators = sum(part.amount or 0.0 for part in parts if part.calls is not None)
    rest = sum(part.amount or 0.0 for part in parts if part.is_rest)
    if partial and not (operators and rest):
        return "-"
    return largest_text(parts, _LARGEST) or "-"


def _target_title(comparison: Sequence[Row]) -> list[str]:
    return ["target"] if len({row["target"] for row in comparison}) > 1 else []


def _by_model(comparison: Sequence[Row]) -> list[Row]:
    models = list(dict.fromkeys(row["model"] for row in comparison))
    return sorted(comparison, key=lambda row: models.index(row["model"]))


def _to_act_on(comparison: Sequence[Row]) -> Iterator[str]:
    """A line for each matter that a reader must act on, with what helps."""
    incomplete = [row for row in comparison if row[TIME.of("estimate").value] is None]
    reasons_of = grouped((str(row["time_reason"]), row["model"]) for row in incomplete)
    failed = {str(row["time_reason"]) for row in incomplete if row["failed_tuples"]}
    for reason, models in reasons_of.items():
        retry = "opcost retry: " if reason in failed else ""
        yield f"No estimate of {some(models, _NAMED)}: {retry}{reason}"
    shares = {row["model"]: row["predicted_share"] for row in comparison if row["predicted_share"]}
    if shares:
        found = [f"{percent(share)} of {model}" for model, share in shares.items()]
        yield f"Predicted from other operators, not measured: {some(found, _NAMED)}"
    for flag in _ACT_ON:
        flagged = [row["model"] for row in comparison if flag in (row["end_to_end_flags"] or ())]
        counts = [dict(row["flag_counts"]).get(flag, 0) for row in comparison]
        numbers = [count for count in counts if count]
        operators = [f"operators of {len(numbers)} models"]
        if len(numbers) < 2:
            operators = [counted(count, "operator") for count in numbers]
        found = [*([some(list(dict.fromkeys(flagged)), _NAMED)] if flagged else []), *operators]
        if found:
            name = flag.replace("_", " ").capitalize()
            yield f"{name}: {', '.join(found)}; {FLAGS[flag].remedy}"
    yield from variation_is_much(comparison)
    yield from precision_missed(comparison)
    reasons = [row["energy_reason"] for row in comparison]
    for reason in dict.fromkeys(each for each in reasons if each):
        if reason not in [row["time_reason"] for row in incomplete]:
            some_models = "" if None not in reasons else " of some models"
            yield f"No energy{some_models}: {reason.partition(' (')[0]}"


def _details(
    comparison: Sequence[Row], shares: Sequence[Row], in_context: Sequence[Row]
) -> list[str]:
    lines = []
    for quantity in COMPARED:
        parts = [
            (row["model"], shares_text(_parts(row, shares, quantity), _COSTLIEST))
            for row in comparison
        ]
        if any(text for _, text in parts):
            lines += ["", f"Where the {quantity} goes:"]
            lines += wrapped((f"{model}: {text}" for model, text in parts if text), "  ")
    if phases := phase_lines(comparison):
        lines += ["", *phases]
    for quantity in COMPARED:
        if quantity == TIME or any(row[quantity.of("end_to_end").value] for row in comparison):
            lines += ["", f"The estimate of {quantity} beside the end-to-end measurement:"]
            cells = [{"model": row["model"], **trust_cells(row, quantity)} for row in comparison]
            lines += table_of(with_values(cells, ALWAYS_SHOWN))
    first = comparison[0]
    notes = [
        f"Cache state {first['cache_state']}. {_of_what(comparison)} {TRUST_MEANING}",
        *caveats(comparison, in_context=in_context),
    ]
    lines += ["", *wrapped(notes)]
    if waits := waits_of(comparison):
        lines += ["", "How long the device waits for its host (share of the estimate):"]
        lines += wrapped((f"{text}." for text in waits), "  ")
    return lines


def _of_what(comparison: Sequence[Row]) -> str:
    text = "Shares are of the estimate"
    if any(row[TIME.of("estimate").value] is None for row in comparison):
        return (
            f"{text}; without one, of the end-to-end measurement, or else of what is known. What "
            "is not measured is then the rest of the end-to-end measurement, with the model error."
        )
    return f"{text}."


def _parts(row: Row, shares: Sequence[Row], quantity: Quantity) -> list[Part]:
    operators = [
        share
        for share in shares
        if (share["model"], share["target"]) == (row["model"], row["target"])
    ]
    return breakdown(row, operators, quantity)
