"""Rows whose values are impossible, or were measured on something else."""

import math
from pathlib import Path

from tests.faults import rows
from tests.faults.fault import BAD, GOOD, POOR, Found, fault
from tests.faults.study import Outcome, Study
from tests.faults.verdicts import all_of, explained, file_and_remedy, held, message, refused

APART = "never summed with the others: both values are named, and what to do"


def remade(study: Study) -> Outcome:
    """Make all tables again."""
    for pattern in ("database*", "comparison*"):
        for path in study.results.glob(pattern):
            path.unlink()
    return study.snakemake()


def changed_row(
    study: Study, kind: str = "operators", **values: object
) -> tuple[Path, Outcome, bytes]:
    """Change a row of that kind, and make the tables: the file, what happened, the content."""
    path = study.rows(kind)[0]
    rows.change(path, **values)
    content = path.read_bytes()
    return path, remade(study), content


def impossible(number: str, what: str, kind: str = "operators", **values: object) -> None:
    """A fault: a row with values that cannot be. Refused, and no table holds them."""

    def attempt(study: Study) -> Found:
        path, outcome, _ = changed_row(study, kind, **values)
        found = refused(outcome, file_and_remedy(path))
        return all_of(found, held(not reached(study), "a table holds the value"))

    fault(number, what)(attempt)


def reached(study: Study) -> bool:
    """Whether a time that cannot be stands in the database or in the comparison."""
    tables = (("database", "time_s"), ("comparison", "end_to_end_time_s"))
    return any(
        row[column] is not None and not 0 < row[column] < math.inf
        for name, column in tables
        if (path := study.results / f"{name}.parquet").exists()
        for row in rows.read(path)
    )


impossible("13.1", "`time_s` is NaN, status ok", time_s=math.nan)
impossible("13.2", "`time_s` is infinite, status ok", time_s=math.inf)
impossible("14.1", "`time_s` is -1 s in an operator's row", time_s=-1.0)
impossible("14.2", "`time_s` is -1 s in a model's row", "models", time_s=-1.0)


@fault("15.1", "the status is `bogus`", "refused, or a failure that names the status")
def unknown_status(study: Study) -> Found:
    path, outcome, _ = changed_row(study, status="bogus")
    if outcome.code != 0:
        return refused(outcome, file_and_remedy(path), "bogus")
    return held("bogus" in outcome.text, f"exit 0: {message(outcome)}")


def model_of(study: Study, path: Path) -> dict:
    """A line of the comparison that the row in `path` goes into."""
    comparison = rows.read(study.results / "comparison.parquet")
    if path.parent.name.startswith("models"):
        [line] = [each for each in comparison if each["model"] == path.stem]
        return line
    nulls = [each for each in comparison if each["estimate_time_s"] is None]
    return (nulls or comparison)[0]


def kept_apart(
    study: Study, path: Path, outcome: Outcome, changed: bytes, *says: str, of_both: bool = False
) -> Found:
    """Good if the run refused, or the number is null, and the reason says what differs."""
    if outcome.code != 0:
        return refused(outcome, *says)
    if path.read_bytes() != changed:
        return Found(GOOD, "exit 0: measured again, as the study asks for it")
    line = model_of(study, path)
    ratio = "time_relative_error" if of_both else "estimate_time_s"
    if line[ratio] is not None:
        return Found(BAD, f"summed, or compared, without a word: {line[ratio]:g}")
    return explained(Outcome(0, line["time_reason"], 0), *says)


def other(number: str, what: str, kind: str, says: tuple[str, ...], **values: object) -> None:
    """A fault: a row that was measured on, or under, something else."""

    def attempt(study: Study) -> Found:
        path, outcome, content = changed_row(study, kind, **values)
        found = kept_apart(study, path, outcome, content, *says, of_both=kind == "models")
        too_long = outcome.text.count('"measurement": {') > 1
        return all_of(found, held(not too_long, "prints two conditions as JSON", POOR))

    fault(number, what, APART)(attempt)


TORCH = (r"(?i)torch.{0,40}1\.13\.0", r"2\.\d+")
other("16.1", "another PyTorch in an operator's row", "operators", TORCH, torch_version="1.13.0")
other("16.2", "another PyTorch in a model's row", "models", TORCH, torch_version="1.13.0")
other("17.1", "another device's name", "operators", ("Other CPU",), device_name="Other CPU")
other(
    "17.2",
    "other conditions",
    "operators",
    ("batch_s",),
    conditions_json=lambda text: text.replace('"batch_s": 0.001', '"batch_s": 0.5'),
)
other(
    "18.1",
    "256 processors, a gigabyte of cache, another system, Python, torchvision and sentinel",
    "operators",
    ("256",),
    cpu_count=256,
    last_level_cache_bytes=2**30,
    core_cache_bytes=2**30,
    os="Linux-2.6",
    python_version="2.7.0",
    torchvision_version="0.1.0",
    quiet_sentinel_time_s=1.0,
)


@fault("19.1", "a power limit of 400 W and a clock of 100 MHz, the others 700 W", APART)
def another_power_limit(study: Study) -> Found:
    for path in study.rows():
        rows.change(path, power_limit_w=700.0, sm_clock_mhz=1980.0)
    path, outcome, content = changed_row(study, power_limit_w=400.0, sm_clock_mhz=100.0)
    return kept_apart(study, path, outcome, content, "700", "400")


def gpu_database(study: Study, name: str, **values: object) -> Path:
    """A copy of the database, with values in all its rows."""
    path = study.root / f"{name}.parquet"
    path.write_bytes((study.results / "database.parquet").read_bytes())
    rows.change(path, device_uuid_hash="a" * 16, device="cuda:0", device_name="GPU", **values)
    return path


@fault("20.1", "merge of one GPU at 700 W and at 400 W", "both are kept, and the limits are named")
def merge_of_two_limits(study: Study) -> Found:
    paths = [gpu_database(study, f"w{watts}", power_limit_w=float(watts)) for watts in (700, 400)]
    outcome = study.opcost("merge", "--output", "merged.parquet", *paths)
    if outcome.code != 0:
        return refused(outcome, "700", "400")
    limits = [row["power_limit_w"] for row in rows.read(study.root / "merged.parquet")]
    if limits.count(700.0) != 6 or limits.count(400.0) != 6:
        return Found(BAD, f"{len(limits)} of 12 rows kept: {message(outcome)}")
    named = "700" in outcome.text and "400" in outcome.text
    return held(named, f"all rows kept; the text names both limits: {named}", POOR)


@fault("21.1", "merge with a copy whose times are NaN")
def merge_with_nan(study: Study) -> Found:
    paths = [gpu_database(study, "sound"), gpu_database(study, "nan", time_s=math.nan)]
    return refused(study.opcost("merge", "--output", "merged.parquet", *paths), "nan.parquet")


@fault("22.1", "second measurements of another PyTorch and device, three times as long", APART)
def other_second_measurements(study: Study) -> Found:
    for path in study.rows("operators_2"):
        rows.change(path, torch_version="1.13.0", device_name="Other CPU", **rows.slower(3))
    outcome = remade(study)
    if outcome.code != 0:
        return refused(outcome, "1\\.13\\.0")
    counts = {row["runs"] for row in rows.read(study.results / "database.parquet")}
    if counts != {1}:
        return Found(BAD, f"combined: {counts} runs")
    return Found(GOOD, "not combined")


def difference_of(number: str, what: str, **values: float) -> None:
    """A fault: `diff` of a database with one whose times cannot be."""

    def attempt(study: Study) -> Found:
        after = study.root / "after.parquet"
        after.write_bytes((study.results / "database.parquet").read_bytes())
        rows.change(after, **values)
        return refused(study.opcost("diff", "results/database.parquet", after), "after.parquet")

    fault(number, what)(attempt)


difference_of("60.1", "`diff` against times that are NaN", time_s=math.nan)
difference_of("60.2", "`diff` against times of -1 s", time_s=-1.0)
