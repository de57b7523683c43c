"""Reference data come with opcost, say what they are, and tell nothing about people."""

import re
from pathlib import Path

import pytest
from opcost.costs.answers import costs_of_models
from opcost.databases.database import REFERENCE, default_databases, read_database
from opcost.energy.window import burst_power
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, TIME

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "data" / "reference"
FILES = sorted(FOLDER.glob("*.parquet"))
PERSONAL = re.compile(r"(?<![\w.:/])/(?!sys/)\w|\\\\|@\w|\.local\b|\.lan\b|\bhost", re.IGNORECASE)
"""A path outside of /sys, an address, the name of a host."""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A current folder without a study."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_in_a_clone_they_are_those_of_the_data_folder(elsewhere):
    assert REFERENCE.resolve() == ROOT / "data" / "reference"
    assert [path.name for path in default_databases()] == [path.name for path in FILES] != []


def test_the_study_of_the_current_folder_comes_before_them(elsewhere):
    reference = default_databases()
    own = Path("results/database.parquet")
    own.parent.mkdir()
    own.touch()
    assert default_databases() == [own, *reference]


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def path(request):
    """One of the files."""
    return request.param


@pytest.fixture
def rows(path):
    """Its rows; reading them checks that they are of the present schema version."""
    return read_database(path).to_pylist()


def test_each_holds_results_with_intervals(rows):
    ok = [row for row in rows if row["status"] == "ok"]
    assert len(ok) > 0.9 * len(rows)
    for row in ok:
        assert 0 < row["time_ci_low_s"] <= row["time_s"] <= row["time_ci_high_s"]
        assert row["block_time_s"]
        assert row["energy_reason"] or row["energy_ci_low_j"] < row["energy_j"]


def test_rows_that_a_power_limit_slowed_down_have_the_power_of_their_bursts(rows):
    for row in rows:
        capped = "power_capped" in row["flags"]
        burst = burst_power(row["power_sample_w"], row["power_limit_w"]) if capped else None
        assert bool(row["power_is_of_burst"]) == (burst is not None)
        if burst is not None:
            assert row["power_w"] == pytest.approx(burst.value)
            assert row["energy_j"] == pytest.approx(row["time_s"] * burst.value)


def test_each_is_small_enough_for_git(path):
    assert path.stat().st_size < 1_000_000


def test_each_is_described_as_it_is(path, rows):
    """In the README's table: file, device, threads, PyTorch, protocol, day, tuples, results."""
    [line] = [
        line
        for line in (path.parent / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{path.name}` |")
    ]
    ok = [row for row in rows if row["status"] == "ok"]
    for name in ("device_name", "threads", "torch_version", "protocol_version"):
        assert {str(row[name]) for row in ok} <= set(_cells(line)), name
    days = {str(row["measured_at"].date()) for row in ok}
    assert days <= set(_cells(line))
    assert [str(len(rows)), str(len(ok))] == _cells(line)[-2:]
    assert f"## `{path.name}`" in (path.parent / "README.md").read_text(encoding="utf-8")


def _cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture(params=["h100", "h200"])
def gpu(request):
    """A GPU on the page of real ones, with a folder of further files."""
    return request.param


@pytest.fixture
def on_its_page(gpu):
    """Returns the numbers in the lines about a model on this GPU, table by table."""
    page = (ROOT / "docs/explanation/real_gpus.md").read_text(encoding="utf-8")

    def lines(model):
        start = f"| {model} | {gpu.upper()} |"
        found = [line for line in page.splitlines() if line.startswith(start)]
        return [[_numbers(cell) for cell in _cells(line)[2:]] for line in found]

    return lines


def test_the_page_states_sums_and_wholes_as_the_file_has_them(gpu, on_its_page):
    for row in costs_of_models(FOLDER / gpu / "answers.parquet"):
        (sum_ms, whole_ms, time, sum_j, whole_j, energy), _ = on_its_page(row["model"][:-4])
        assert sum_ms == [near(row["estimate_time_s"] * 1e3)]
        assert whole_ms == [near(row["end_to_end_time_s"] * 1e3)]
        assert time == percents(TIME.error.read(row))
        assert sum_j == [near(row["estimate_energy_j"])]
        assert whole_j == [near(row["end_to_end_energy_j"])]
        assert energy == percents(ENERGY.error.read(row))


def test_the_page_states_graphs_as_the_file_has_them(gpu, on_its_page):
    read = records.read(FOLDER / gpu / "launches.parquet", schemas.LAUNCHES)
    graphs = [row for row in read.to_pylist() if row["launch_mode"] == "graph"]
    assert len(graphs) == 3
    for row in graphs:
        _, (time_ms, time, _, joules, energy) = on_its_page(row["model"][:-4])
        assert time_ms == [near(row["time_s"] * 1e3)]
        assert time == percents(TIME.error.read(row))[:1]
        assert joules == [near(row["energy_j"])]
        assert energy == percents(ENERGY.error.read(row))[:1]


def near(value):
    """A value that is rounded to three digits."""
    return pytest.approx(value, rel=0.005)


def percents(error):
    """An error and its interval in per cent, rounded to two digits or a tenth."""
    parts = (error.value, error.low, error.high)
    return [pytest.approx(100 * part, abs=0.051 if abs(part) < 0.1 else 0.51) for part in parts]


def _numbers(cell):
    return [float(number) for number in re.findall(r"[-+]?\d+(?:\.\d+)?", cell)]


def texts(value):
    """Every text in a value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from texts(element)


def test_none_tells_of_people_or_their_machines(path, rows):
    for row in rows:
        for name, value in row.items():
            for text in texts(value):
                assert not PERSONAL.search(text), f"{name} of {row['tuple_id']}: {text}"
    for text in records.metadata(path).values():
        assert not PERSONAL.search(text)
