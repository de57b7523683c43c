"""Tables of where a cost goes, as `opcost explain` prints them."""

from collections.abc import Sequence

from opcost.costs.breakdown import OTHERS, Part, costliest, with_rest_of
from opcost.costs.module_tree import Branch
from opcost.costs.terms import Term
from opcost.text import counted, joules, percent, scaled, seconds, shortened, table

_MISSING = 10
_DIGITS = 3
_LINE = 90


def missing_lines(missing: Sequence[Term], total: int) -> list[str]:
    """The tuples without a result, of so many in all; empty if there are none."""
    if not missing:
        return []
    lines = ["", f"  Missing: {len(missing)} of {total} tuples"]
    for term in missing[:_MISSING]:
        why = "" if term.row is None else f": {term.row['status']}: {term.row['error']}"
        lines.append(f"    {term.calls} x {shortened(str(term.record.operator_tuple), _LINE)}{why}")
    more = len(missing) - _MISSING
    return [*lines, *([f"    ... and {more} more (--json lists all)"] if more > 0 else [])]


def indented(lines: Sequence[str]) -> list[str]:
    """The lines of a table under the heading of a target."""
    return [f"  {line}" for line in lines]


def operator_lines(every: Sequence[Part], of_energy: Sequence[Part], top: int) -> list[str]:
    """Where the time goes, the `top` operators, with the energy of each part."""
    parts = costliest(with_rest_of(of_energy, every), top)
    named = {part.name for part in parts}
    rest = [part for part in of_energy if part.name not in named]
    rest_j = sum(part.amount or 0.0 for part in rest)
    energies = {
        part.name: _at_least(part.complete, _energy(part.amount))
        for part in [*of_energy, Part(OTHERS, rest_j, None, complete=all(p.complete for p in rest))]
    }
    known = all(part.share is not None for part in every)
    rows = [
        [
            part.name,
            "" if part.calls is None else str(part.calls),
            "-" if part.amount is None else _at_least(part.complete, _time(part.amount)),
            # Of what is measured, which is no lower limit of the share of all.
            _at_least(part.complete or not known, percent(part.share, 1)),
            energies.get(part.name, "-"),
        ]
        for part in parts
    ]
    title = "where the time goes" if known else "where the measured time goes"
    return _with_energy([title, "calls", "time", "share", "energy"], rows, bool(of_energy))


def _at_least(complete: bool, amount: str) -> str:
    """A lower limit if some of the part is not measured."""
    return amount if complete or amount.startswith(("<", "-")) else f">{amount}"


def module_lines(branches: Sequence[Branch], model: str) -> list[str]:
    """The branches of a model's tree; what calls, FLOPs and parameters where none is measured."""
    root = branches[0]
    known = root.tuples == root.measured_tuples or root.share < 1
    rows = [
        [
            _name(branch, model),
            str(branch.calls),
            *(
                "-" if each is None else scaled(each, "").strip()
                for each in (branch.flops, branch.parameters)
            ),
            *([] if root.is_unmeasured else _measured_part(branch, known)),
        ]
        for branch in branches
    ]
    header = ["modules", "calls", "FLOPs", "parameters"]
    if root.is_unmeasured:
        return table(header, rows)
    header += ["time", "share" if known else "of measured", "energy"]
    return _with_energy(header, rows, any(branch.energy_j for branch in branches))


def _measured_part(branch: Branch, known: bool) -> list[str]:
    """Time, share and energy; lower limits if an operator is not measured, dashes if none is.

    Unless the cost of the whole model is `known`, shares are of what is measured.
    """
    if branch.is_unmeasured:
        return ["-", "-", "-"]
    complete = branch.tuples == branch.measured_tuples
    return [
        _at_least(complete, _time(branch.time_s)),
        _at_least(complete or not known, percent(branch.share, 1)),
        _at_least(complete, _energy(branch.energy_j)),
    ]


def _time(value: float) -> str:
    return seconds(value, _DIGITS)


def _name(branch: Branch, model: str) -> str:
    indent = "  " * branch.depth
    if branch.is_rest:
        others = [counted(branch.others, "other")] if branch.others else []
        itself = ["itself"] if branch.calls_operators or not others else []
        return f"{indent}{' and '.join([*itself, *others])}"
    kind = f" ({branch.module_class})" if branch.is_leaf and branch.module_class else ""
    return f"{indent}{'.'.join(branch.path) or model}{kind}"


def _energy(value: float | None) -> str:
    return joules(value, _DIGITS) if value else "-"


def _with_energy(header: list[str], rows: list[list[str]], energy: bool) -> list[str]:
    return table(header, rows) if energy else table(header[:-1], [row[:-1] for row in rows])
