"""What `opcost profile` prints: the operators of models inside the running model."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from opcost.costs import in_place_text
from opcost.costs.explanation import Explanation, explain
from opcost.results_folder import DATABASE, extraction
from opcost.runs.study_file import read_studies
from opcost.text import wrapped
from opcost.tuples.model_tuples import read_model_tuples


def profile(only: Mapping[str, Sequence[str]] | None, by: str, top: int) -> tuple[str, bool]:
    """Tables of these models on these targets, and whether each was timed in place."""
    study = read_studies().study(only)
    parts, complete = [], True
    for target, models in (study.only or {}).items():
        explained = [*chain.from_iterable(_explained(model, target) for model in models)]
        complete &= len(explained) == len(models)
        compared = [each.compared for each in explained]
        cells = in_place_text.model_cells(compared)
        parts += [f"Target {target}: {in_place_text.TITLE}", *in_place_text.lines(cells), ""]
        parts += wrapped([in_place_text.MEANING, *in_place_text.verdicts(compared)])
        for each in explained:
            if (reason := each.estimate.in_place.reason) is not None:
                complete = False
                parts += ["", *wrapped([f"{each.estimate.model.model}: not in place: {reason}"])]
            else:
                parts += ["", *_table(each, by, top)]
    return "\n".join(parts), complete


def _explained(model: str, target: str) -> Iterator[Explanation]:
    path = extraction(model)
    if path.exists():
        tuples = read_model_tuples(path)
        if tuples.refusal is None:
            yield from explain(tuples, [DATABASE], [target])


def _table(explanation: Explanation, by: str, top: int) -> list[str]:
    estimate = explanation.estimate
    rows = estimate.in_place.rows()
    cells = {
        "operator": lambda: in_place_text.operator_cells(rows),
        "tuple": lambda: in_place_text.tuple_cells(rows),
        "module": lambda: in_place_text.module_cells(explanation.modules()),
        "call": lambda: in_place_text.call_cells(estimate),
    }[by]()
    left = {"module": 3, "call": 3}.get(by, 1)
    rest = [f"({len(cells) - top} more: --top)"] if len(cells) > top else []
    name = estimate.model.model
    return [f"{name}, by {by}:", *in_place_text.lines(cells[:top], left), *rest]
