"""The text that `opcost profile` prints: where the time of running models goes."""

from collections.abc import Iterator, Mapping, Sequence

from opcost.costs import in_context_text
from opcost.costs.answers import costs_of_models
from opcost.costs.caveats import caveats
from opcost.costs.explanation import explain_in_study
from opcost.costs.terms import Row, by_target
from opcost.costs.trust import trust
from opcost.results_folder import ANSWERS
from opcost.rows.quantities import TIME
from opcost.runs.request import Request, extracted
from opcost.text import table_of, with_meaning_of_noise, wrapped
from opcost.tuples.model_table import not_extracted
from opcost.tuples.model_tuples import ModelTuples, refusals

_UNKNOWN = "the model is not measured end to end"


def profile(request: Request, by: str, top: int) -> tuple[str, bool]:
    """Tables of the request's models on its targets, with the notes of a summary, and whether each
    model has an estimate and times in context.
    """
    models, extractions = [*request.study.models], extracted(request.study)
    compared = by_target(costs_of_models(ANSWERS))
    parts, complete = [], True
    for target in request.study.conditions:
        rows = [row for model in models if (row := compared[target].get(model)) is not None]
        complete &= len(rows) == len(models) and all(
            row[TIME.error.value] is not None and row["in_context_reason"] is None for row in rows
        )
        parts += [_profile_of(target, extractions, models, rows, by, top)]
    refused = not_extracted(refusals([*extractions.values()]))
    parts += ["\n".join(refused)] if refused else []
    return with_meaning_of_noise("\n\n".join(parts)), complete


def _profile_of(
    target: str,
    extractions: Mapping[str, ModelTuples],
    models: Sequence[str],
    rows: Sequence[Row],
    by: str,
    top: int,
) -> str:
    lines, in_context = [f"Target {target}"], []
    for row in rows:
        estimate = explain_in_study(extractions[row["model"]], target).estimate
        in_context += estimate.in_context.rows()
        if cells := in_context_text.context_cells(estimate, row, by, top):
            title = f"Where the time of {row['model']} goes inside the running model, by {by}:"
            left = list(cells[0]).index("in context") - (by != "call")
            lines += ["", title, *table_of(cells, left)]
    if cells := in_context_text.difference_cells(rows):
        lines += ["", *wrapped([in_context_text.MEANING])]
        lines += ["", in_context_text.DIFFERENCE_TITLE, *table_of(cells)]
        lines += ["", *wrapped([in_context_text.DIFFERENCE_MEANING])]
    return "\n".join([*lines, "", *wrapped(_notes(models, rows, in_context))])


def _notes(models: Sequence[str], rows: Sequence[Row], in_context: Sequence[Row]) -> Iterator[str]:
    """Models without times in context, the trust in others, and caveats."""
    named = {row["model"]: row for row in rows}
    for model in models:
        reason = named[model]["in_context_reason"] if model in named else _UNKNOWN
        if reason is not None:
            yield f"{model}: no time in context: {reason}."
    for row in rows:
        if row[TIME.error.value] is not None:
            yield f"Trust in the breakdown of {row['model']}: {trust(row)}."
    if rows:
        yield from caveats(rows, quantities=(TIME,), in_context=in_context)
