"""The ratios of estimate and end-to-end on each target of a results folder."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from opcost.costs.estimate import ModelEstimate
from opcost.costs.terms import Row, terms_of
from opcost.databases.aggregation import end_to_end_rows
from opcost.databases.measured import Damages, Measured
from opcost.models.definition import ModelDefinition
from opcost.results_folder import folder_of, model_of
from opcost.rows import comparability
from opcost.rows.flags import CALLS_DIFFER, CALLS_VARY, UNSURE_POWER
from opcost.rows.quantities import ENERGY
from opcost.rows.runs import ModelRatio, Noise, combined_value, noise_of
from opcost.statistics import Estimate
from opcost.tuples.traces import extracted_as

_OTHER_CALLS = {CALLS_VARY, CALLS_DIFFER}
_MOSTLY = 0.5


def ratios_of(
    measured: Measured, damages: Damages, rows: Mapping[str, Mapping[str, Row]]
) -> dict[str, list[ModelRatio]]:
    """Target -> the ratios of its models, from its rows by tuple id.

    Left out are models of which an operator is not measured, that are defined otherwise than when
    they were measured, or whose calls were others than those of the estimate; layers, which are
    called otherwise than models; models whose device waits for its host most of the time: the
    intervals of their estimates hold the pace of the host; and the energy of runs whose flags
    doubt their power. Notes damaged files in `damages`.
    """
    noises = {target: noise_of(list(of_target.values())) for target, of_target in rows.items()}
    found: dict[str, list[ModelRatio]] = defaultdict(list)
    for paths in measured.models:
        target = measured.target_in(folder_of(paths[0]))
        with damages.tolerated(paths[0]):
            ratio = target in rows and _ratio(paths, rows[target], noises[target], damages)
            if ratio and (ratio.time, ratio.energy) != (None, None):
                found[target].append(ratio)
    return found


def _ratio(
    paths: Sequence[Path], rows: Mapping[str, Row], noise: Noise, damages: Damages
) -> ModelRatio | None:
    """The ratio of a model, as if it had never been measured end to end."""
    folder = folder_of(paths[0])
    read = {path: row for path in paths for row in end_to_end_rows(path, damages.remedy(path))}
    found = damages.once(read).values()
    runs = [row for row in found if not _OTHER_CALLS & {*(row["flags"] or ())}]
    if not runs:
        return None
    definition = ModelDefinition.from_json(runs[0]["definition_json"])
    model = extracted_as(definition, runs[0]["torch_version"], folder)
    if model is None or (model.definition is not None and model.definition.layer is not None):
        return None
    terms = terms_of(model, rows, set())
    estimate = ModelEstimate(model, terms, (), noise)
    measured = ModelEstimate(model, terms, runs, noise)
    if comparability.conflict([*estimate.rows, *runs]) is not None or _is_of_the_host(measured):
        return None
    dates = [row["measured_at"] for row in measured.end_to_end_rows if row["measured_at"]]
    sure = [row for row in measured.end_to_end_rows if not UNSURE_POWER & {*row["flags"]}]
    return ModelRatio(
        model_of(paths[0]),
        model.trains,
        _log_ratio(estimate.summed_time, measured.end_to_end_time),
        _log_ratio(
            estimate.summed_energy, combined_value(sure, ENERGY, measured.noise.variations[ENERGY])
        ),
        max(dates).isoformat() if dates else None,
        {each.operator_tuple.tuple_id: calls for each, calls in model.kernels()},
    )


def _is_of_the_host(measured: ModelEstimate) -> bool:
    found = measured.iteration
    return found is not None and found.idle.value > _MOSTLY * found.time.value


def _log_ratio(estimate: Estimate | None, measured: Estimate | None) -> float | None:
    if estimate is None or measured is None:
        return None
    return math.log(estimate.value / measured.value)
