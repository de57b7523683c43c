"""Tables of where a cost goes, as `opcost explain` prints them."""

from collections.abc import Callable, Sequence

from opcost.costs.breakdown import OTHERS, Part, costliest, with_rest_of
from opcost.costs.module_tree import Branch
from opcost.costs.terms import Term
from opcost.text import counted, fitted, joules, percent, scaled, seconds, shortened

_DIGITS = 3
_LINE = 90


def missing_lines(where: str, missing: Sequence[Term], total: int, most: int) -> list[str]:
    """The operators without a result, of so many in all, of which `most` are listed; empty if there
    are none.
    """
    if not missing:
        return []
    lines = [f"Not measured on {where}: {len(missing)} of {total} operators"]
    for term in missing[:most]:
        why = f": not predicted: {term.refusal}" if term.refusal else ""
        if term.row is not None:
            why = f": {term.row['status']}: {term.row['error']}"
        if term.predicted and term.row:
            why = f": predicted, {seconds(term.row['time_s'], _DIGITS)} each"
        lines.append(f"  {term.calls} x {shortened(str(term.record.operator_tuple), _LINE)}{why}")
    more = len(missing) - most
    return [*lines, *([f"  ... and {more} more (--json lists all)"] if more > 0 else [])]


def indented(lines: Sequence[str]) -> list[str]:
    """The lines of a table under the heading of a target."""
    return [f"  {line}" for line in lines]


Breakdown = tuple[str, Sequence[Part], Sequence[Part]]
"""A target, and the parts of the time and the energy of a model there."""


def operator_lines(breakdowns: Sequence[Breakdown], top: int) -> list[str]:
    """Where the time and energy go on each target, side by side: the `top` operators of the first
    one, and what is beyond operators on any of them. Shares are shown for a single target.
    """
    _, first, of_energy = breakdowns[0]
    parts = costliest(with_rest_of(of_energy, first), top)
    for _, times, energies in breakdowns[1:]:
        listed = {part.name for part in parts}
        every = costliest(with_rest_of(energies, times), 0)
        parts += [each for each in every if each.calls is None and each.name not in listed]
        if OTHERS not in listed and _unlisted([*times, *energies], parts):
            parts.append(Part(OTHERS, None, None, calls=0))
    one, known = len(breakdowns) == 1, all(part.share is not None for part in first)
    columns = []
    for target, times, energies in breakdowns:
        named = "" if one else f"{target} "
        columns.append((f"{named}time", _amounts(parts, times, _time)))
        if one:
            # Of what is measured, which is no lower limit of the share of all.
            shares = [
                _marked(p.complete or not known, p.predicted, percent(p.share, 1)) for p in parts
            ]
            columns.append(("share", shares))
        if energies:
            columns.append((f"{named}energy", _amounts(parts, energies, _energy)))
    goes = "where the time goes" if known else "where the measured time goes"
    cells = [
        {
            goes: part.name,
            "calls": str(part.calls or ""),
            **{title: column[n] for title, column in columns},
        }
        for n, part in enumerate(parts)
        if not part.is_rest or any(column[n] != "-" for _, column in columns)
    ]
    return fitted(cells, reversed([title for title, _ in columns if "energy" in title]), left=1)


def _amounts(
    parts: Sequence[Part], there: Sequence[Part], show: Callable[[float | None], str]
) -> list[str]:
    """The amount of each part on a target; of other operators, of all that is not named."""
    named = {part.name: part for part in there}
    rest = _unlisted(there, parts)
    total = sum(part.amount or 0.0 for part in rest)
    named[OTHERS] = Part(
        *(OTHERS, total or None, None),
        complete=all(part.complete for part in rest),
        predicted=any(part.predicted for part in rest),
    )
    found = (named.get(part.name) for part in parts)
    return [_marked(p.complete, p.predicted, show(p.amount)) if p else "-" for p in found]


def _unlisted(there: Sequence[Part], parts: Sequence[Part]) -> list[Part]:
    """The operators on a target that the table does not list."""
    listed = {part.name for part in parts}
    return [part for part in there if part.calls is not None and part.name not in listed]


def _marked(complete: bool, predicted: bool, amount: str) -> str:
    """A lower limit if some of the part is not known; marked if some of it is predicted."""
    mark = "~" if predicted else ""
    return amount if amount.startswith(("<", "-")) else f"{mark if complete else '>'}{amount}"


def module_lines(branches: Sequence[Branch], model: str, title: str = "modules") -> list[str]:
    """The branches of a model's tree; what calls, FLOPs and parameters where none is measured."""
    root = branches[0]
    known = root.complete or root.share < 1
    rows = [
        [
            _name(branch, model),
            str(branch.calls),
            *(
                "-" if each is None else scaled(each, "").strip()
                for each in (branch.flops, branch.parameters)
            ),
            *([] if root.is_unknown else _cost(branch, known)),
        ]
        for branch in branches
    ]
    header = [title, "calls", "FLOPs", "parameters"]
    if not root.is_unknown:
        header += ["time", "share" if known else "of measured", "energy"]
    if not any(branch.energy_j for branch in branches):
        header, rows = [each for each in header if each != "energy"], [row[:6] for row in rows]
    cells = [dict(zip(header, row, strict=True)) for row in rows]
    return fitted(cells, ("parameters", "FLOPs", "calls", "energy", "share"), left=1)


def _cost(branch: Branch, known: bool) -> list[str]:
    """Time, share and energy; lower limits if an operator is not known, dashes if none is.

    Unless the cost of the model is `known`, shares are of what is.
    """
    if branch.is_unknown:
        return ["-", "-", "-"]
    predicted = branch.predicted_tuples > 0
    return [
        _marked(branch.complete, predicted, _time(branch.time_s)),
        _marked(branch.complete or not known, predicted, percent(branch.share, 1)),
        _marked(branch.complete, predicted, _energy(branch.energy_j)),
    ]


def _time(value: float | None) -> str:
    return "-" if value is None else seconds(value, _DIGITS)


def _name(branch: Branch, model: str) -> str:
    indent = "  " * branch.depth
    if branch.is_rest:
        others = [counted(branch.others, "other")] if branch.others else []
        itself = ["itself"] if branch.calls_operators or not others else []
        return f"{indent}{' and '.join([*itself, *others])}"
    kind = f" ({branch.module_class})" if branch.is_leaf and branch.module_class else ""
    numbered = branch.path and branch.path[-1][0] in "[0123456789"
    own = ".".join(branch.path[-2 if numbered else -1 :])
    return f"{indent}{own or model}{kind}"


def _energy(value: float | None) -> str:
    return joules(value, _DIGITS) if value else "-"
