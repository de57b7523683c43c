"""A campaign on a lent GPU keeps to its time, and goes on from what it brought home."""

import contextlib
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from opcost.devices import machine
from opcost.study import load_study

from tests.checkout import REPOSITORY, Checkout, wait_until
from tests.gpu import campaign, kernels, known_work, predictions
from tests.gpu.archive import MOST, Archive, unpack
from tests.gpu.peers import compared, of_three
from tests.simulated_cuda import gpu

DATABASE = Path("results/database.parquet")
SEEN_S = 1.5
"""Within which a row that is complete is on its way home."""

pytestmark = pytest.mark.slow


@pytest.fixture
def away(tmp_path, monkeypatch):
    """The folder that travels; this is an empty one beside it."""
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    return tmp_path / "out"


@pytest.mark.parametrize("answer", ["sys.exit(0)", "None"])
def test_what_does_not_end_is_stopped_in_time(answer, away, monkeypatch):
    monkeypatch.setattr(campaign, "_ENDING_S", 1.0)
    monkeypatch.setattr(campaign, "_KILL_S", 1.0)
    code = f"import signal, sys, time; signal.signal({int(signal.SIGTERM)}, lambda *_: {answer})"
    code += "; print('began', flush=True); time.sleep(60)"
    start_s = time.monotonic()
    command, clock = [sys.executable, "-c", code], campaign.Clock(4 / 60)
    assert campaign.run(command, clock, Path("output"), Archive(away)) is None
    assert time.monotonic() - start_s < 20
    assert Path("output").read_text().startswith("began")


@pytest.fixture
def stages(away, monkeypatch):
    """Completes a piece under some conditions; which of its stages ran, with what they answer."""
    campaign.RECORD.mkdir()
    clock, archive = campaign.Clock(9), Archive(away)

    def completed(piece, conditions, *answers):
        ran, left = [], list(answers)
        monkeypatch.setattr(campaign.Piece, "conditions", lambda _: conditions)
        monkeypatch.setattr(
            campaign, "run", lambda _c, _t, output, _a: ran.append(output.stem) or left.pop(0)
        )
        assert campaign.complete(piece, "end_to_end", clock, archive) == (set(answers) <= {0})
        return [each.partition(".")[2] for each in ran]

    return completed


def test_a_whole_model_is_not_measured_before_its_prediction(stages):
    piece = campaign.Piece("resnet", "a question", 60, {"models": ["resnet18"]})
    assert stages(piece, "here", 0, 1) == ["operators", "predictions"]
    assert stages(piece, "here", 0, None) == ["predictions", "end_to_end"]
    assert stages(piece, "here", 0) == ["end_to_end"]
    assert stages(piece, "here") == []


def test_all_of_a_piece_is_of_one_gpu_and_driver_and_not_measured_again_on_another(stages):
    piece = campaign.Piece("resnet", "a question", 60, {"models": ["resnet18"]})
    assert stages(piece, "here", 0, 0, 1) == ["operators", "predictions", "end_to_end"]
    assert stages(piece, "another driver", 0, 0, 0) == ["operators", "predictions", "end_to_end"]
    assert stages(piece, "another GPU") == []


def test_a_new_driver_has_folders_of_its_own(monkeypatch):
    piece, found = campaign.pieces_in(campaign.PIECES)[0], set()
    for driver in ("580.159.03", "580.159.04", "580.159.03"):
        monkeypatch.setattr(machine, "loaded_driver", lambda driver=driver: driver)
        found.add(piece.conditions())
    assert len(found) == 2


def test_some_pieces_are_of_each_gpu(stages):
    piece = campaign.Piece("b", "a question", 60, {"models": ["resnet18"]}, each_board=True)
    assert stages(piece, "here", 0, 0, 0)
    assert stages(piece, "here") == []
    assert len(stages(piece, "another GPU", 0, 0, 0)) == 3


def test_what_was_measured_comes_home_in_parts_and_replaces_nothing_newer(away):
    archive = Archive(away, largest=25_000)
    archive.pack([])
    for name in "abc":
        Path(name).write_bytes(name.encode() * 9_000)
        archive.add([Path(name)])
    Path("a").write_text("measured again")
    archive.add(map(Path, "abc"))
    assert len(list(away.iterdir())) == 3
    assert max(path.stat().st_size for path in away.iterdir()) <= 25_000
    again = Archive(away)
    again.pack(map(Path, "ab"))
    again.add(map(Path, "abc"))
    assert [path.stat().st_size < 10_000 for path in sorted(away.iterdir())] == [True, False]
    for name in "abc":
        Path(name).unlink()
    Path("b").write_text("newer")
    unpack(away)
    assert Path("a").read_text() == "measured again"
    assert Path("b").read_text() == "newer"
    assert Path("c").read_text() == "c" * 9_000


def test_an_archive_that_is_cut_off_anywhere_holds_all_files_before(away):
    archive, names, ends = Archive(away), ("a", "b", "c"), []
    archive.pack([])
    part = away / "archive.1.tar"
    for name in names:
        Path(name).write_text(name * 700)
        archive.add([Path(name)])
        ends.append(part.stat().st_size)
    content = part.read_bytes()
    for size in range(0, len(content), 50):
        part.write_bytes(content[:size])
        for path in Path().iterdir():
            path.unlink()
        unpack(away)
        found = {path.name: path.read_text() for path in Path().iterdir()}
        assert all(text == name * 700 for name, text in found.items())
        assert {name for name, end in zip(names, ends, strict=True) if end <= size} <= set(found)


def test_an_archive_is_refused_that_would_not_come_home(away):
    archive = Archive(away, largest=5_000)
    archive.pack([])
    for name in map(str, range(MOST - 1)):
        Path(name).write_text(name)
        archive.add([Path(name)])
    Path("more").write_text("more")
    with pytest.raises(SystemExit, match="is full: begin a campaign without --home"):
        archive.add([Path("more")])


def test_a_part_that_cannot_be_read_is_named_and_the_others_are(away, capsys):
    Path("row").write_text("measured")
    archive = Archive(away)
    archive.pack([])
    archive.add([Path("row")])
    Path("row").unlink()
    (away / "archive.0.tar").write_text("no archive")
    unpack(away)
    assert Path("row").read_text() == "measured"
    assert "archive.0.tar ends early" in capsys.readouterr().out


def test_predictions_that_come_home_replace_those_of_before(away):
    """Also those that were checked out later: a later command has stated more."""
    file = Path("campaign/predictions.csv")
    file.parent.mkdir()
    file.write_text("first and second")
    Archive(away).pack([file])
    file.write_text("first")
    unpack(away)
    assert file.read_text() == "first and second"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--only", "sensro"], "no piece sensro; there are sensor, "),
        (["--minutes", "-5"], "--minutes is to be above 0"),
        ([], "holds what was measured before: give it as --home"),
    ],
)
def test_what_a_command_cannot_do_is_refused_before_anything_changes(
    away, arguments, why, monkeypatch, capsys
):
    Archive(away).pack([])
    before = (away / "archive.0.tar").read_bytes()
    monkeypatch.setattr("sys.argv", ["campaign", str(away), "--minutes", "9", *arguments])
    with pytest.raises(SystemExit):
        campaign.main()
    assert why in capsys.readouterr().err
    assert (away / "archive.0.tar").read_bytes() == before


def test_an_empty_folder_brings_nothing_home(tmp_path):
    with pytest.raises(SystemExit, match="copy there what the last command wrote"):
        unpack(tmp_path)


def test_every_study_of_the_list_is_valid_and_says_what_it_decides():
    pieces = campaign.pieces_in(campaign.PIECES)
    assert len({piece.name for piece in pieces}) == len(pieces)
    for piece in pieces:
        assert piece.decides
        assert bool(piece.study) != bool(piece.command)
        if piece.study:
            assert load_study(piece.study).models
            whole = "end_to_end" in piece.stages
            assert not whole or "predictions" in piece.stages


@pytest.fixture
def measured(finished, monkeypatch):
    """The row of an operator of a study, in whose folder this is."""
    monkeypatch.chdir(finished.root)
    return of_three(DATABASE)[0]


def test_other_procedures_are_compared_with_a_row(measured, cpu, tmp_path, monkeypatch):
    card = tmp_path / "nvidia-smi"
    card.write_text("#!/bin/sh\nwhile true; do echo 50.0; sleep 0.01; done\n")
    card.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    ours, *others = compared(measured, cpu, loop_s=0.3)
    assert (ours["peer"], ours["time_s"]) == ("opcost", measured["time_s"])
    by_peer = {each["peer"]: each for each in others}
    of_torch = by_peer["torch.utils.benchmark"]
    assert of_torch["time_differs"] == pytest.approx(of_torch["time_s"] / measured["time_s"] - 1)
    looped = by_peer["loop beside nvidia-smi"]
    assert looped["energy_j"] == pytest.approx(50 * looped["time_s"])


def test_a_procedure_that_is_not_installed_is_a_row_with_the_reason(measured, cpu, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert "nvidia-smi" in compared(measured, cpu, loop_s=0.1)[-1]["reason"]


@pytest.mark.usefixtures("measured")
def test_models_whose_kernels_cannot_be_recorded_are_rows_with_the_reason(tmp_path, monkeypatch):
    output = tmp_path / "kernels.csv"
    arguments = ["kernels", str(DATABASE), str(output), "alexnet", "tests/study/models/none.yaml"]
    monkeypatch.setattr(sys, "argv", arguments)
    kernels.main()
    text = output.read_text()
    assert "alexnet,,,,,the profiler recorded no kernels" in text
    assert 'none.yaml,,,,,"OpcostError' in text


def test_a_program_of_known_work_that_fails_is_a_reason(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    found = known_work.measured("matmul", 0.1, [])
    assert found.keys() == {"program", "reason"}
    assert "cuda:0" in found["reason"]


def test_the_record_of_the_card_does_not_say_which_one_it_is(tmp_path, monkeypatch):
    card = tmp_path / "nvidia-smi"
    card.write_text(
        "#!/bin/sh\necho '  Product Name : A'\necho '  Serial Number : 17'\n"
        "echo '  GPU UUID : GPU-61'\necho '  Current Power Limit : 700 W'\n"
    )
    card.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    campaign.RECORD.mkdir()
    campaign.settings_of_card()
    [record] = [path.read_text() for path in campaign.RECORD.iterdir()]
    assert record == "  Product Name : A\n  Current Power Limit : 700 W\n"


LIST = """
common:
  model_directory: tests/study/models
  targets: {gpu: {device: cuda}}
  rounds: 1
  measurement: &quick
    {cache_state: warm, warm_up_s: 0.01, batch_s: 0.001, min_batches: 6, time_relative_ci: 0.5,
    min_time_s: 0.01, model_time_s: 0.05, power_relative_ci: 0.5, power_min_s: 1.0,
    power_max_s: 1.0, idle_s: 0.1, max_repeats: 0}
pieces:
  - {name: first, decides: with energy, seconds: 60, study: {models: [tiny_mlp]}}
  - name: second
    decides: time only
    seconds: 20
    study:
      targets: {gpu_time: {device: cuda}}
      models: [tiny_cnn]
      measurement: {<<: *quick, energy: false}
  - name: last
    decides: with energy, of an operator alone
    seconds: 30
    stages: [operators]
    study: {models: [{name: large, operator: "relu(64x64)"}]}
"""


class Lent:
    """A host with the simulated GPU, which keeps nothing from one command to the next."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, -1
        self.gpu = gpu.SimulatedGpu(folder / "gpu")
        (folder / "pieces.yaml").write_text(LIST)

    def begin(self, **settings: float) -> subprocess.Popen:
        """Begin the next command on a new host, from what the one before brought home."""
        self.number += 1
        self.host, self.out = (self.folder / f"{each}_{self.number}" for each in ("host", "out"))
        home = self.folder / f"out_{self.number - 1}"
        Checkout(self.host)
        shutil.copytree(REPOSITORY / "tests", self.host / "tests", dirs_exist_ok=True)
        words = [str(self.out), "--minutes", "8", "--pieces", str(self.folder / "pieces.yaml")]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.campaign", *words, *home_of(home)],
            cwd=self.host,
            env={**self.gpu.environment(**settings), "PYTHONPATH": str(REPOSITORY / "scripts")},
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_for_rows(self, number: int) -> None:
        """Wait until it has so many."""
        wait_until(lambda: len(rows_in(self.host)) >= number)

    def brought_home(self) -> dict[Path, float]:
        """The rows in what it brought home."""
        there = self.folder / f"home_{self.number}"
        there.mkdir()
        with contextlib.chdir(there):
            unpack(self.out)
        assert len(list(self.out.iterdir())) <= MOST
        return rows_in(there)


def home_of(folder: Path) -> list[str]:
    return ["--home", str(folder)] if folder.exists() else []


def rows_in(folder: Path) -> dict[Path, float]:
    """The files of rows, with the time of each."""
    found = [*folder.glob("results/*/*/operators/*"), *folder.glob("results/*/*/models*/*")]
    complete = [path for path in found if path.suffix == ".parquet" and path.name[0] != "."]
    return {path.relative_to(folder): path.stat().st_mtime for path in complete}


@pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))
def test_a_campaign_that_is_stopped_at_any_moment_loses_no_row(tmp_path):
    """Three commands are stopped; the fourth, whose GPU is too hot, completes the list."""
    lent, before = Lent(tmp_path), {}
    for signalled in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        command = lent.begin()
        lent.wait_for_rows(len(before) + 1)
        time.sleep(random.uniform(0, 4))
        finished = {each for each, at in rows_in(lent.host).items() if at < time.time() - SEEN_S}
        if signalled == signal.SIGKILL:  # as when a machine is taken away
            for process in psutil.Process(command.pid).children(recursive=True):
                process.kill()
        command.send_signal(signalled)
        said, _ = command.communicate(timeout=100)
        assert signalled == signal.SIGKILL or "To be continued: " in said
        before = lent.brought_home()
        assert finished <= before.keys()
    said, _ = lent.begin(sw_thermal_share=0.3).communicate(timeout=200)
    assert said.endswith("Nothing is left to do.\n")
    after = lent.brought_home()
    assert {each: after[each] for each in before} == pytest.approx(before)  # none measured again
    home = lent.folder / "home_3"
    rows = {each: pq.read_table(home / each).to_pylist()[0] for each in after}
    assert {row["status"] for row in rows.values()} == {"ok"}
    hot = [row for path, row in rows.items() if path not in before and row["power_w"]]
    assert hot
    assert all("throttled" in row["flags"] for row in hot)
    check_predictions(home, [row for path, row in rows.items() if "models" in str(path.parent)])


def check_predictions(home: Path, wholes: list[dict]) -> None:
    """Each whole model has predictions of before, and is compared with all of them."""
    with contextlib.chdir(home):
        predictions.compare()
        stated = predictions.stated()
        with predictions.PAIRS.open(newline="") as file:
            pairs = list(csv.DictReader(file))
    assert len(pairs) == 2 * 3 * len(wholes)  # time and energy; this GPU, the H100 and the H200
    for whole in wholes:
        of_model = [each for each in stated if each["model"] == whole["model"]]
        assert len(of_model) == 2 * 3
        assert all(bool(each["value"]) != bool(each["reason"]) for each in of_model)
        last = max(datetime.fromisoformat(each["stated_at"]) for each in of_model)
        assert last <= whole["started_at"]
        assert all(each["value"] for each in of_model[:1])
