"""The method's own error on each target of a results folder, as columns of its database."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost import statistics
from opcost.costs.estimate import OPERATOR_COLUMNS, ModelEstimate
from opcost.costs.method import Difference, labelled, method_columns
from opcost.costs.model_speeds import speeds_of_models
from opcost.costs.terms import Row, terms_of
from opcost.databases.aggregation import whole_rows
from opcost.databases.measured import Damages, Measured
from opcost.models.definition import ModelDefinition
from opcost.results_folder import folder_of, model_of
from opcost.rows import comparability, records, schemas
from opcost.rows.executed import in_round
from opcost.rows.flags import CALLS_DIFFER, CALLS_VARY
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.statistics import Estimate
from opcost.tuples.recordings import extracted_as

_Differences = dict[Quantity, Difference | None]

_OTHER_CALLS = {CALLS_VARY, CALLS_DIFFER}


def methods_of(measured: Measured, damages: Damages, database: Path) -> dict[str, dict[str, Any]]:
    """Target -> the columns of its rows, from those of a database without these columns.

    Left out are models of which an operator is not measured, that are defined otherwise than when
    they were measured, or whose calls were others than those of the estimate; and layers, which are
    called otherwise than models. Notes damaged files in `damages`.
    """
    rows: dict[str, dict[str, Row]] = defaultdict(dict)
    if measured.models:
        read = [*OPERATOR_COLUMNS, "execution_round", "execution_core_speed_per_s"]
        for row in records.read(database, schemas.DATABASE, read).to_pylist():
            rows[row["target"]][row["tuple_id"]] = row
    speeds = speeds_of_models(measured, rows)
    for target, columns in speeds.items():
        rows[target] = {each: {**row, **columns} for each, row in rows[target].items()}
    found: dict[str, dict[str, _Differences]] = defaultdict(dict)
    for paths in measured.models:
        target, model = measured.target_in(folder_of(paths[0])), model_of(paths[0])
        with damages.tolerated(paths[0]):
            trained, differences = _differences(paths, rows[target], damages)
            if any(differences.values()):
                found[target][labelled(model, trained)] = differences
    methods = {
        target: method_columns(
            list(models), {each: [known[each] for known in models.values()] for each in COMPARED}
        )
        for target, models in found.items()
    }
    return {target: columns | methods.get(target, {}) for target, columns in speeds.items()}


def _differences(
    paths: Sequence[Path], rows: Mapping[str, Row], damages: Damages
) -> tuple[bool, _Differences]:
    """Whether a model is trained, and how far its sum, as if it had never been measured as a whole,
    lies from that.
    """
    folder = folder_of(paths[0])
    read = {
        path: in_round(row, path)
        for path in paths
        for row in whole_rows(path, damages.remedy(path))
    }
    wholes = list(damages.once(read).values())
    if not wholes:
        return False, {}
    definition = ModelDefinition.from_json(wholes[0]["definition_json"])
    model = extracted_as(definition, wholes[0]["torch_version"], folder)
    if model is None or (model.definition is not None and model.definition.layer is not None):
        return False, {}
    wholes = [row for row in wholes if not _OTHER_CALLS & {*(row["flags"] or ())}]
    terms = terms_of(model, rows, set())
    estimate, measured = ModelEstimate(model, terms), ModelEstimate(model, terms, wholes)
    if comparability.conflict([*estimate.rows, *wholes]) is not None:
        return False, {}
    pairs = {
        TIME: (estimate.summed_time, measured.whole_time),
        ENERGY: (estimate.summed_energy, measured.whole_energy),
    }
    return model.trains, {quantity: _difference(*pair) for quantity, pair in pairs.items()}


def _difference(total: Estimate | None, whole: Estimate | None) -> Difference | None:
    if total is None or whole is None:
        return None
    ratio = statistics.ratio(total, whole)
    return None if ratio.sd is None else Difference(ratio.value - 1, ratio.sd / ratio.value)
