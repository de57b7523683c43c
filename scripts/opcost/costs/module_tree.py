"""A model's cost as a tree of modules, of which the costliest are opened."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opcost.costs.breakdown import WAITING, total_cost
from opcost.costs.shares import OVERHEAD_COLUMN
from opcost.costs.terms import Row
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity

NOTABLE = 0.005
_TOO_MANY = 2
_TUPLES = ("tuples", "measured_tuples", "predicted_tuples")

Path = tuple[str, ...]
"""The names in a module's path; empty for the model itself."""


@dataclass(frozen=True)
class Branch:
    """A line of the tree: a module with its descendants.

    Or, if `is_rest`, its small children (`others`) and, if it `calls_operators`, the module itself.

    `share` is relative to the model's time, 0 where none is known. Seconds and joules are of
    operators that are measured or predicted, with their call overhead. FLOPs and parameters are
    None if unknown. `tuples` are added up over modules; without all of them (`complete`), it is a
    lower limit.
    """

    path: Path
    depth: int
    module_class: str | None
    calls: int
    time_s: float
    energy_j: float
    share: float
    flops: int | None
    parameters: int | None
    tuples: int
    measured_tuples: int
    predicted_tuples: int
    is_leaf: bool
    is_rest: bool = False
    calls_operators: bool = True
    others: int = 0

    @property
    def is_unknown(self) -> bool:
        """Whether none of its operators is measured or predicted."""
        return self.tuples > 0 and not self.measured_tuples + self.predicted_tuples

    @property
    def complete(self) -> bool:
        """Whether all of its operators are measured or predicted."""
        return self.tuples == self.measured_tuples + self.predicted_tuples


@dataclass
class _Node:
    calls: int = 0
    time_s: float = 0.0
    energy_j: float = 0.0
    flops: int | None = 0
    parameters: int | None = None
    own_parameters: int | None = None
    tuples: int = 0
    measured_tuples: int = 0
    predicted_tuples: int = 0
    module_class: str | None = None
    children: dict[Path, "_Node"] = field(default_factory=dict)


def module_amounts(compared: Row, modules: Sequence[Row], quantity: Quantity) -> list[float]:
    """Seconds or joules of each module with its call overhead, whose energy is divided like its
    time. The wait for the host belongs to no module.
    """
    partial = [row[quantity.of("partial").value] or 0.0 for row in modules]
    beyond_s = [row[OVERHEAD_COLUMN] or 0.0 for row in modules]
    if quantity == TIME:
        return [own + more for own, more in zip(partial, beyond_s, strict=True)]
    estimate, total_s = compared[quantity.of("estimate").value], math.fsum(beyond_s)
    if estimate is None or not total_s:
        return partial
    power_w = max(estimate - math.fsum(partial), 0.0) / total_s
    return [own + power_w * more for own, more in zip(partial, beyond_s, strict=True)]


def module_tree(
    compared: Row,
    modules: Sequence[Row],
    most: int | None,
    smallest: float = NOTABLE,
    parameters: Mapping[str, int] | None = None,
    own_parameters: Mapping[str, int] | None = None,
) -> list[Branch]:
    """The tree from the model down, siblings by time.

    The costliest module is opened repeatedly until `most` are listed that are not open (all, if
    None). Siblings with a smaller share than `smallest` are one branch, with their parent's own
    calls; with `most`, equal siblings are one, such as `layer[1-11]`. Without any measurement, the
    costliest are those with the most FLOPs, and siblings keep the order of the rows. `parameters`
    are numbers by module path; `own_parameters` leave out those of submodules.
    """
    if not modules:
        return []
    folded = {} if most is None else _folded(modules)
    nodes = _nodes(compared, modules, folded)
    for known, name in ((parameters, "parameters"), (own_parameters, "own_parameters")):
        for path, number in (known or {}).items():
            if node := nodes.get(folded.get(_names(path), _names(path))):
                setattr(node, name, (getattr(node, name) or 0) + number)
    total_s = total_cost(compared, nodes[()].time_s, TIME)
    least_s = smallest * total_s
    opened = _opened(nodes, most, least_s)
    return _branches((), nodes, opened, total_s, least_s)


def _names(path: str) -> Path:
    return tuple(path.split(".")) if path else ()


def _folded(modules: Sequence[Row]) -> dict[Path, Path]:
    """Path -> the path with equal siblings as one: those whose names differ by a final number, and
    that make the same calls in the same places.
    """
    calls: dict[Path, list[object]] = defaultdict(list)
    for row in modules:
        path = _names(row["module_path"])
        ids, counts = row.get("tuple_ids") or path, row.get("tuple_calls") or path
        made = sorted(zip(ids, counts, strict=True))
        for length in range(1, len(path) + 1):
            calls[path[:length]].append((path[length:], row["phase"], row["module_class"], made))
    alike: dict[tuple[Path, str, str], list[tuple[int, Path]]] = defaultdict(list)
    own = {path: path[-1] for path in calls}
    for path, found in calls.items():
        if match := re.fullmatch(r"(.*?)(\d+)", path[-1]):
            stem, number = match.groups()
            alike[path[:-1], stem, repr(sorted(found, key=repr))].append((int(number), path))
    for (_, stem, _), siblings in alike.items():
        if len(siblings) > 1:
            name = f"{stem}[{_ranges(sorted(number for number, _ in siblings))}]"
            own |= {path: name for _, path in siblings}
    return {path: tuple(own[path[:end]] for end in range(1, len(path) + 1)) for path in calls}


def _ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers as a text such as `1-3,5`."""
    ends = [n for n, after in zip(numbers, [*numbers[1:], None], strict=True) if after != n + 1]
    starts = [n for n, before in zip(numbers, [None, *numbers], strict=False) if before != n - 1]
    return ",".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in zip(starts, ends, strict=True)
    )


def _nodes(compared: Row, modules: Sequence[Row], folded: Mapping[Path, Path]) -> dict[Path, _Node]:
    """Each module and its ancestors, with the total cost of their descendants; a GPU's wait for its
    host is a child of the model.
    """
    nodes: dict[Path, _Node] = defaultdict(_Node)
    times_s, energies_j = (module_amounts(compared, modules, each) for each in COMPARED)
    for row, time_s, energy_j in zip(modules, times_s, energies_j, strict=True):
        path = _names(row["module_path"])
        path = folded.get(path, path)
        for length in range(len(path) + 1):
            node = nodes[path[:length]]
            node.time_s += time_s
            node.energy_j += energy_j
            node.calls += row["calls"]
            node.tuples += row["tuples"]
            node.measured_tuples += row["measured_tuples"]
            node.predicted_tuples += row["predicted_tuples"]
            node.flops = None if None in (node.flops, row["flops"]) else node.flops + row["flops"]
            if length:
                nodes[path[: length - 1]].children[path[:length]] = node
        nodes[path].module_class = row["module_class"]
    if waits_s := compared["idle_time_s"]:
        total_j = compared[ENERGY.of("estimate").value]
        waits_j = 0.0 if total_j is None else max(total_j - nodes[()].energy_j, 0.0)
        nodes[()].children[WAITING,] = nodes[WAITING,] = _Node(0, waits_s, waits_j)
        nodes[()].time_s += waits_s
        nodes[()].energy_j += waits_j
    return nodes


def _opened(nodes: Mapping[Path, _Node], most: int | None, least_s: float) -> set[Path]:
    if most is None:
        return set(nodes)
    opened: set[Path] = set()
    closed: set[Path] = {()}
    while closed and len(closed) < most:
        path = max(sorted(closed), key=lambda each: (nodes[each].time_s, nodes[each].flops or 0))
        closed.remove(path)
        children = [each for each, node in nodes[path].children.items() if node.time_s >= least_s]
        if children and len(closed) + len(children) <= _TOO_MANY * most:
            opened.add(path)
            closed.update(children)
    return opened


def _branches(
    path: Path, nodes: Mapping[Path, _Node], opened: set[Path], total_s: float, least_s: float
) -> list[Branch]:
    node = nodes[path]
    found = [_branch(path, len(path), node, total_s)]
    if path not in opened or not node.children:
        return found
    children = sorted(node.children, key=lambda each: -nodes[each].time_s)
    shown = [each for each in children if nodes[each].time_s >= least_s]
    for child in shown:
        found += _branches(child, nodes, opened, total_s, least_s)
    rest = _Node(
        node.calls - sum(nodes[each].calls for each in shown),
        node.time_s - math.fsum(nodes[each].time_s for each in shown),
        node.energy_j - math.fsum(nodes[each].energy_j for each in shown),
        None if node.flops is None else node.flops - sum(nodes[each].flops or 0 for each in shown),
        None
        if node.own_parameters is None
        else node.own_parameters
        + sum(nodes[e].parameters or 0 for e in children if e not in shown),
        **{
            name: getattr(node, name) - sum(getattr(nodes[each], name) for each in shown)
            for name in _TUPLES
        },
    )
    if rest.calls or len(shown) < len(children):
        branch = _branch(path, len(path) + 1, rest, total_s)
        others = len(children) - len(shown)
        own = node.calls > sum(nodes[each].calls for each in children)
        found.append(replace(branch, others=others, is_rest=True, calls_operators=own))
    return found


def _branch(path: Path, depth: int, node: _Node, total_s: float) -> Branch:
    share = node.time_s / total_s if total_s else 0.0
    costs = (node.calls, node.time_s, node.energy_j, share, node.flops, node.parameters)
    tuples = (node.tuples, node.measured_tuples, node.predicted_tuples)
    return Branch(path, depth, node.module_class, *costs, *tuples, is_leaf=not node.children)
