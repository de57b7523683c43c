"""Reference data come with opcost, say what they are, and tell nothing about people."""

import csv
import re
import shutil
from collections import Counter
from pathlib import Path
from statistics import fmean

import pyarrow.parquet as pq
import pytest
from opcost.costs.answers import costs_of_models
from opcost.databases.database import REFERENCE, default_databases, read_database
from opcost.energy.window import burst_power
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, TIME

from docs.explanation import real_gpus

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
    records.write(own, schemas.DATABASE, [])
    assert default_databases() == reference, "without a row"


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


@pytest.mark.parametrize("page", real_gpus.PAGES)
def test_pages_have_the_figures_of_the_files(page):
    written = (ROOT / page).read_text(encoding="utf-8")
    assert written == real_gpus.filled(written), f"{page} is out of date; to mend it: make docs"


def test_each_block_of_figures_is_on_one_page():
    pages = "".join((ROOT / page).read_text(encoding="utf-8") for page in real_gpus.PAGES)
    found = re.findall("<!-- from data/reference: (.+?) -->", pages)
    assert sorted(found) == sorted(real_gpus.BLOCKS)


def test_figures_of_another_card_need_no_change_of_the_script(tmp_path, monkeypatch):
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    shutil.copytree(FOLDER / "h200", tmp_path / "h200_second")
    [rows] = FOLDER.glob("h200_*.parquet")
    shutil.copy(rows, tmp_path / rows.name.replace("h200", "h200_second"))
    monkeypatch.setattr(real_gpus, "FOLDER", tmp_path)
    monkeypatch.setattr(real_gpus, "CARDS", cards := real_gpus.cards())
    assert [card.title for card in cards] == ["H100", "H200", "H200_SECOND"]
    for blocks in ("PAIRS", "APART"):
        own = "estimated" if blocks == "PAIRS" else "apart"
        pairs = [(card, model) for card in cards for model in getattr(card, own)]
        monkeypatch.setattr(real_gpus, blocks, pairs)
    for name, block in real_gpus.BLOCKS.items():
        made = block()
        if "GPU |" in made and name != "waiting":  # of which the H200 has no file
            of_first = [
                line.replace("H200", "") for line in made.splitlines() if "| H200 |" in line
            ]
            assert of_first
            assert of_first == [
                line.replace("H200_SECOND", "")
                for line in made.splitlines()
                if "| H200_SECOND |" in line
            ]


@pytest.fixture(params=[card.name for card in real_gpus.CARDS])
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


def test_the_page_states_estimates_and_end_to_end_measurements_as_the_file_has_them(
    gpu, on_its_page
):
    for row in costs_of_models(FOLDER / gpu / "answers.parquet"):
        (own_ms, whole_ms, time, own_j, whole_j, energy, _), *_ = on_its_page(row["model"])
        assert own_ms[0] == near(row["estimate_time_s"] * 1e3)
        assert whole_ms[0] == near(row["end_to_end_time_s"] * 1e3)
        assert time == percents(TIME.error.read(row))
        assert own_j[0] == near(row["estimate_energy_j"])
        assert whole_j[0] == near(row["end_to_end_energy_j"])
        assert energy == percents(ENERGY.error.read(row))


def test_the_page_states_graphs_as_the_file_has_them(gpu, on_its_page):
    read = records.read(FOLDER / gpu / "launches.parquet", schemas.LAUNCHES)
    graphs = [row for row in read.to_pylist() if row["launch_mode"] == "graph"]
    assert graphs
    for row in graphs:
        _, (time_ms, time, _, kernels, joules, energy), _ = on_its_page(row["model"])
        assert time_ms == [near(row["time_s"] * 1e3)]
        assert time == percents(TIME.error.read(row))[:1]
        assert kernels == [
            pytest.approx(100 * (_kernels_s(gpu, row) / row["time_s"] - 1), abs=0.051)
        ]
        assert joules == [near(row["energy_j"])]
        assert energy == percents(ENERGY.error.read(row))[:1]


def _kernels_s(gpu, row):
    with (FOLDER / gpu / "kernels.csv").open(encoding="utf-8", newline="") as file:
        return sum(
            float(line["calls"]) * float(line["mean_us"]) * 1e-6
            for line in csv.DictReader(file)
            if line["model"] == row["model"] and line["where"] == "GPU"
        )


def test_the_page_states_calls_in_context_as_the_files_have_them(gpu, on_its_page):
    """But for what reading events adds to a call, which the script knows."""
    [card] = (card for card in real_gpus.CARDS if card.name == gpu)
    isolated_s = {row["tuple_id"]: row["time_s"] for row in read_database(card.file).to_pylist()}
    runs = pq.read_table(FOLDER / gpu / "models.parquet").to_pylist()
    for model in card.estimated:
        context_s = []
        for row in runs:
            if row["model"] == model and row["call_time_s"]:
                calls = zip(row["call_tuple_id"], row["call_time_s"], strict=True)
                calls = [call for call in calls if call[0] in isolated_s]
                events_s = card.events_s.mean() * len(calls)
                context_s.append(sum(time_s for _, time_s in calls) - events_s)
        sum_s, mean_s = sum(isolated_s[own] for own, _ in calls), fmean(context_s)
        own_ms, net, *_ = on_its_page(model)[-1]
        assert own_ms == [near(1e3 * mean_s)]
        assert net == [pytest.approx(100 * (sum_s / mean_s - 1), abs=0.051)]


def test_the_gap_of_a_launch_is_as_the_page_says():
    for card in real_gpus.CARDS:
        assert card.gap_s == pytest.approx(1.1e-6, abs=0.05e-6)
        assert (card.events_s < card.gap_s).all()


def test_the_readme_counts_flags_as_the_file_has_them(path, rows):
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    section = readme.split(f"## `{path.name}`")[1].split("\n## ")[0]
    section = " ".join(section.split())
    counted = Counter(flag for row in rows for flag in row["flags"])
    found = {
        flag: int(count) for count, flag in re.findall(r"(\d+) +(?:rows )?are `(\w+)`", section)
    }
    assert found == counted


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
