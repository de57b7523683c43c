"""A campaign on a lent GPU keeps to its time, and goes on from what it brought home."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.checkout import REPOSITORY, Checkout, configure
from tests.gpu import campaign, kernels
from tests.gpu.peers import compared, of_three
from tests.simulated_cuda import gpu

DATABASE = Path("results/database.parquet")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("answer", ["sys.exit(0)", "None"])
def test_what_does_not_end_is_stopped_in_time(answer, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "_ENDING_S", 1.0)
    monkeypatch.setattr(campaign, "_KILL_S", 1.0)
    code = f"import signal, sys, time; signal.signal({int(signal.SIGTERM)}, lambda *_: {answer})"
    code += "; print('began', flush=True); time.sleep(60)"
    start_s = time.monotonic()
    assert campaign.run([sys.executable, "-c", code], 4, tmp_path / "output") is None
    assert time.monotonic() - start_s < 20
    assert (tmp_path / "output").read_text().startswith("began")


def test_what_was_measured_comes_home_in_parts_and_replaces_nothing_newer(tmp_path, monkeypatch):
    out, home = tmp_path / "out", tmp_path / "home"
    for folder in (out, home, tmp_path / "host/results"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "host")
    Path("results/a").write_bytes(data := os.urandom(30_000))
    Path("results/b").write_text("measured")
    campaign.pack(out, "1000")
    campaign.pack(out, "10000")
    assert sorted(path.name for path in out.iterdir())[0] == "archive.tar.gz.000"
    assert max(path.stat().st_size for path in out.iterdir()) <= 10_000
    monkeypatch.chdir(home)
    campaign.unpack(out)
    assert Path("results/a").read_bytes() == data
    Path("results/b").write_text("measured again")
    campaign.unpack(out)
    assert Path("results/b").read_text() == "measured again"


def test_an_empty_folder_brings_nothing_home(tmp_path):
    with pytest.raises(SystemExit, match="copy there what the last command wrote"):
        campaign.unpack(tmp_path)


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
    record = (tmp_path / "campaign/nvidia-smi.txt").read_text()
    assert record == "  Product Name : A\n  Current Power Limit : 700 W\n"


@pytest.mark.slow
@pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))
def test_a_campaign_on_the_simulated_gpu_goes_on_from_what_it_brought_home(tmp_path):
    simulated = gpu.SimulatedGpu(tmp_path / "gpu")
    out = tmp_path / "out"
    said = []
    for number, steps in enumerate((["study"], ["study", "peers", "kernels"])):
        host = Checkout(tmp_path / f"host_{number}")
        shutil.copytree(REPOSITORY / "tests", host.root / "tests", dirs_exist_ok=True)
        configure(host, targets={"local": {"device": "cuda", "any_of_kind": True}})
        command = [sys.executable, "-m", "tests.gpu.campaign", str(out), "--minutes", "8"]
        command += ["--configfile", "tests/study/config.yaml", "--models", "tiny_mlp"]
        command += ["--loop-s", "1", "--home", str(out)] if number else []
        ran = subprocess.run(
            [*command, "--steps", *steps],
            cwd=host.root,
            env={**simulated.environment(), "PYTHONPATH": "scripts"},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout)
    assert "study of tiny_mlp" in said[0]
    assert "study" not in said[1]
    assert "peers" in said[1]
    assert "complete" in said[1]
    assert (host.root / "campaign/peers.csv").read_text().count("\n") > 4
    assert "tiny_mlp," in (host.root / "campaign/kernels.csv").read_text()
