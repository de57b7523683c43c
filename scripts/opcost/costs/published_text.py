"""A study's models compared with published costs."""

from collections.abc import Iterable, Mapping, Sequence

from opcost.costs.headline import headline, of_each
from opcost.costs.terms import Row
from opcost.published import Published
from opcost.rows.quantities import COMPARED, Quantity
from opcost.statistics import Estimate
from opcost.text import difference, table_of, with_interval, with_values, wrapped

_NOTHING = "-"
_NAMED = 3


def published_lines(published: Iterable[Published], comparison: Sequence[Row]) -> list[str]:
    """A line for each published model and target of the study, and the published models without
    one; empty if nothing was published or compared.
    """
    listed = list(published)
    cells = [
        _cells(row, each) for each in listed for row in comparison if row["model"] == each.model
    ]
    notes = _without_rows(listed, comparison) if comparison else []
    if not cells:
        return wrapped(notes) if notes else []
    return [
        "Compared with published costs:",
        "",
        *table_of(with_values(cells), left=3),
        *(["", *wrapped(notes)] if notes else []),
    ]


def _without_rows(published: Iterable[Published], comparison: Iterable[Row]) -> list[str]:
    compared = {row["model"] for row in comparison}
    models = dict.fromkeys(each.model for each in published)
    absent = [model for model in models if model not in compared]
    if not absent:
        return []
    named = ", ".join(absent[:_NAMED]) + (", ..." if len(absent) > _NAMED else "")
    return [
        "Published models that are not in the study, or have no result yet: "
        f"{len(absent)} of {len(models)} ({named})."
    ]


def _cells(row: Row, published: Published) -> Mapping[str, str]:
    found = headline(row)
    cells = {"model": row["model"], "on": row["target"], "published on": published.device}
    for quantity in COMPARED:
        cost = found.cost(quantity)
        known = _figure(published, quantity)
        cells[str(quantity)] = with_interval(cost, quantity.show) if known else _NOTHING
        cells[f"published {quantity}"] = quantity.show(known) if known else _NOTHING
    for quantity in COMPARED:
        known = _figure(published, quantity.of("sample"))
        each = of_each(found.cost(quantity), found.batch_size)
        cells[f"{quantity}/sample"] = with_interval(each, quantity.show) if known else _NOTHING
        cells[f"published {quantity}/sample"] = quantity.show(known) if known else _NOTHING
    for quantity in COMPARED:
        end_to_end, total = _figure(published, quantity), _figure(published, quantity.of("sum"))
        error = Estimate(total / end_to_end - 1, None, None) if end_to_end and total else None
        title = f"{quantity}: estimate - end-to-end"
        cells[title] = difference(quantity.error.read(row) if error else None)
        cells[f"published {title}"] = difference(error)
    return cells


def _figure(published: Published, quantity: Quantity) -> float | None:
    found: float | None = getattr(published, quantity.value)
    return found
