"""How long a device waits for its host, in words."""

from collections import defaultdict
from collections.abc import Sequence

from opcost.costs.terms import Row
from opcost.rows.quantities import HOST_TIME, TIME
from opcost.text import seconds

WAITING_TITLE = "How long the device waits for its host"
_NAMED = 4
_NOTABLE = 0.005
_DEEPEST, _MOST = 3, 0.8


def waiting(compared: Row, modules: Sequence[Row]) -> str | None:
    """For which share of its time a model waits for its host, and where; None on a processor.

    `modules` are the costs by module of the same model and target.
    """
    share = compared["host_bound_share"]
    if share is None:
        return None
    host_s, device_s = compared[HOST_TIME.value], compared["operators_time_s"]
    whole_s = compared[HOST_TIME.of("reference").value]
    estimated = " (estimated; not measured in this model)"
    if whole_s is not None:
        estimated, host_s = f" (estimated from its operators: {seconds(host_s)})", whole_s
    needs = f"the host needs {seconds(host_s)} to launch its calls{estimated}, the device "
    needs += f"{seconds(device_s)} to run them"
    if share < _NOTABLE:
        return f"{compared['model']} does not wait for its host: {needs}"
    text = f"{compared['model']} waits for its host {share:.0%} of the time: {needs}"
    where = _where(modules, compared[TIME.of("estimate").value])
    return f"{text}. It waits in {', '.join(where)}" if where else text


def waits_of(comparison: Sequence[Row], modules: Sequence[Row]) -> list[str]:
    """The same for each model of a target."""
    by_model: dict[str, list[Row]] = defaultdict(list)
    for row in modules:
        by_model[row["model"]].append(row)
    found = (waiting(row, by_model[row["model"]]) for row in comparison)
    return [text for text in found if text is not None]


def _where(modules: Sequence[Row], whole_s: float) -> list[str]:
    """The modules in which a model waits longest, at the first depth at which none has most.

    Not deeper than a few modules account for most of it."""
    waits_s = _at_depth(modules, 1)
    for depth in range(2, _DEEPEST + 1):
        deeper = _at_depth(modules, depth)
        total_s = sum(waits_s.values())
        if max(waits_s.values(), default=0.0) <= _MOST * total_s:
            break
        if sum(sorted(deeper.values())[-_NAMED:]) < total_s / 2:
            break
        waits_s = deeper
    longest = sorted(waits_s, key=lambda path: -waits_s[path])[:_NAMED]
    shares = {path or "the model itself": waits_s[path] / whole_s for path in longest}
    return [f"{path} {share:.0%}" for path, share in shares.items() if share >= _NOTABLE]


def _at_depth(modules: Sequence[Row], depth: int) -> dict[str, float]:
    waits_s: dict[str, float] = defaultdict(float)
    for row in modules:
        waits_s[".".join(row["module_path"].split(".")[:depth])] += row["idle_time_s"] or 0.0
    return waits_s
