"""What the product says of a finished study, and of models in a database, as lines of numbers.

With numbers.txt, this alone knows the product's functions and tables.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opcost.costs.breakdown import breakdown
from opcost.costs.comparison import Tables, compare_study
from opcost.costs.estimate import OPERATOR_COLUMNS
from opcost.costs.explanation import explain
from opcost.costs.headline import headline
from opcost.costs.known_ratios import ratios_of
from opcost.costs.requests import requests_in
from opcost.costs.sweeps import single_operators, sweep_rows
from opcost.databases.aggregation import end_to_end_rows, write_database
from opcost.databases.database import asked_for, read_database
from opcost.databases.database import rows_of as noise_rows
from opcost.databases.measured import find_measured
from opcost.databases.model_ratios import read_ratios
from opcost.difference.databases import compare_databases
from opcost.plain_yaml import read_yaml
from opcost.results_folder import DATABASE, RESULTS, extractions_of, target_folders
from opcost.rows import records, schemas
from opcost.rows.quantities import COMPARED
from opcost.rows.runs import Noise, noise_of
from opcost.statistics import Estimate
from opcost.study import Study, load_study
from opcost.tuples.manifest import collect, to_benchmark
from opcost.tuples.model_table import rows_of
from opcost.tuples.model_tuples import ModelTuples, read_extractions
from opcost.tuples.traces import calls_on

Row = Mapping[str, Any]
NUMBERS = Path(__file__).with_name("numbers.txt")


class Line(NamedTuple):
    """A number with its 95 % interval, or the reason why there is none."""

    model: str
    target: str
    part: str
    source: str
    quantity: str
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


def tables() -> dict[str, list[list[str]]]:
    """The numbers of each table, as numbers.txt says."""
    found: dict[str, list[list[str]]] = defaultdict(list)
    for text in NUMBERS.read_text().splitlines():
        words = text.partition("#")[0].split()
        if len(words) == 1:
            table = words[0]
        elif words:
            found[table].append([*words, *[words[2], ""][len(words) - 3 :]])
    return found


TABLES = tables()


def lines_of(table: str, row: Row, where: tuple[str, str], given: str = "") -> Iterator[Line]:
    """The numbers of a row. Left out are those that it has no column for, and those without a value
    and a reason: they are no numbers of such a row.
    """
    for part, source, quantity, column, why in TABLES[table]:
        value, reason = row.get(column), row.get(why)
        if value is None and reason is None:
            continue
        stem, _, unit = column.rpartition("_")
        limits = [
            row.get(f"{stem}_ci_{side}_{unit}", row.get(f"{column}_ci_{side}"))
            for side in ("low", "high")
        ]
        said = (given if each == "." else each for each in (part, source))
        yield Line(*where, *said, quantity, value, *limits, reason if value is None else None)


def estimated(number: Estimate, *where: str) -> Line:
    return Line(*where, number.value, number.low, number.high)


def of_model(
    where: tuple[str, str], compared: Row, operators: Sequence[Row], modules: Sequence[Row]
) -> Iterator[Line]:
    """A model's cost on a target, and where it goes."""
    yield from lines_of("comparison", compared, where)
    for flag, rows in dict(compared["flag_counts"] or {}).items():
        yield Line(*where, f"flag:{flag}", "estimate", "rows", rows)
    for flag in compared["end_to_end_flags"] or ():
        yield Line(*where, f"flag:{flag}", "end_to_end", "rows", 1)
    first = headline(compared)
    for quantity in COMPARED:
        if rate := first.rate(quantity):
            yield Line(*where, "total", "headline", f"samples_per_{quantity.unit}", rate)
        for part in breakdown(compared, operators, quantity):
            yield Line(*where, f"share:{part.name}", "estimate", f"{quantity}_share", part.share)
    for row in operators:
        kind = "operator" if row["launches_kernel"] else "view"
        yield from lines_of("operator", row, where, f"{kind}:{row['operator']}{in_phase(row)}")
    for row in modules:
        yield from lines_of("module", row, where, f"module:{row['module_path']}{in_phase(row)}")


def in_phase(row: Row) -> str:
    return "" if row["phase"] == "forward" else f"@{row['phase']}"


def of_database(path: Path, prefix: str) -> Iterator[Line]:
    """The rows of a database, and what they know of their targets."""
    targets = {}
    for row in read_database(path).to_pylist():
        where = "", f"{prefix}/{row['target']}"
        targets[where] = row
        error = None if row["status"] == "ok" else f"{row['status']}: {row['error']}"
        call = f"call:{row['tuple_id']}"
        yield from lines_of("database", {**row, "error": error}, where, call)
        yield from (
            Line(*where, call, "isolated", f"flag:{flag}", 1) for flag in row["flags"] or ()
        )
    for where, row in targets.items():
        yield from lines_of("target", row, where)


def of_explanation(model: ModelTuples, databases: Mapping[str, Path]) -> Iterator[Line]:
    """What databases say of a model, where they have any of its operators."""
    for prefix, path in databases.items():
        for each in explain(model, [path]):
            where = model.model, f"{prefix}/{each.target}"
            if each.has_data:
                yield from of_model(where, each.compared, each.operators(), each.modules())


def of_difference(
    before: Path, after: Path, targets: Mapping[str, str], name: str
) -> Iterator[Line]:
    """What changed from one database to another."""
    found = compare_databases(before, after, targets=targets, anyway=True)
    for row in found.to_table().to_pylist():
        yield from lines_of("difference", row, ("", name), f"call:{row['tuple_id']}")
    for each in found.quantities:
        if each.common:
            yield estimated(
                each.common.ratio, "", name, "common", "difference", f"{each.quantity}_ratio"
            )


class Derived(NamedTuple):
    """What follows from the measurements of a finished study."""

    study: Study
    models: Sequence[ModelTuples]
    on_targets: Mapping[str, Sequence[ModelTuples]]
    operators: Sequence[Row]
    noises: Mapping[str, Noise]
    tables: Tables


def derived() -> Derived:
    """From the measurements in the current folder, of which it makes the database."""
    study = load_study(read_yaml(Path("config.yaml")))
    measured = find_measured(RESULTS)
    write_database(measured, DATABASE, ratios=ratios_of)
    models = read_extractions(path for name in study.models for path in extractions_of(name))
    folders = {folder.parent.name: folder for folder in target_folders()}
    on_targets = {target: calls_on(folders[target], models) for target in study.conditions}
    manifest = collect([each for found in on_targets.values() for each in found], study.operators)
    conditions = {target: each.to_json() for target, each in study.conditions.items()}
    database = records.read(DATABASE, schemas.DATABASE, OPERATOR_COLUMNS)
    operators = asked_for(database, conditions, to_benchmark(manifest)).to_pylist()
    wholes = [
        row | {"target": target}
        for target, folder in folders.items()
        for path in sorted(folder.glob("models*/*.parquet"))
        for row in end_to_end_rows(path, "")
    ]
    ratios = read_ratios(DATABASE)
    noises = {
        target: noise_of(noise_rows(database, target), ratios.get(target, ()))
        for target in conditions
    }
    found = compare_study(on_targets, operators, wholes, manifest, noises, study.precision.models)
    return Derived(study, models, on_targets, operators, noises, found)


def of_study(prefix: str) -> Iterator[Line]:
    """What a finished study says, from the measurements in the current folder."""
    study, models, on_targets, operators, noises, found = derived()
    for row in rows_of([each for each in models if not each.is_operator]):
        yield from lines_of("extraction", row, (row["model"], prefix))

    def at(row: Row) -> tuple[str, str]:
        return row["model"], f"{prefix}/{row['target']}"

    for row in found.comparison:
        of_row = ([each for each in table if at(each) == at(row)] for table in found[1:3])
        yield from of_model(at(row), row, *of_row)
    for row in found.in_context:
        yield from lines_of("in_context", row, at(row), f"call:{row['tuple_id']}")
    for row in found.launches:
        yield from lines_of("launches", row, at(row), f"launch_mode:{row['launch_mode']}")
    for request in requests_in(study.generations, found.comparison):
        yield from lines_of(
            "requests", request.columns(), (request.generation.name, f"{prefix}/{request.target}")
        )
    alone = single_operators(on_targets, operators, noises)
    sweeps = sweep_rows(study.sweeps, study.target_sweeps, [*found.comparison, *alone], models)
    for row in sweeps:
        yield from lines_of("sweeps", row, at(row))
        for mark in ("least", "within_noise"):
            yield from (Line(*at(row), mark, "sweep", each, 1) for each in row[mark])
    yield from of_database(DATABASE, prefix)
