"""The page for users of other tools: its lines are counted, and what it shows of opcost is run.

Power limits are set in test_power_limit.py.
"""

import re
import subprocess
import sys
import time

import pytest
import yaml
from click.testing import CliRunner
from opcost.commands import INCOMPLETE, main

from tests.documents import ROOT, blocks
from tests.simulated_cuda import gpu

PAGE = ROOT / "docs/how_to/from_other_tools.md"
ROWS = re.findall(
    r"^\| \[.+?\]\(#([\w-]+)\) \|.*\| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE
)


def examples():
    """The block of the other tool and that of opcost, by section."""
    found = list(blocks(PAGE))
    there, here = found[::2], found[1::2]
    return dict(zip((section for section, *_ in ROWS), zip(there, here, strict=True), strict=True))


def lines(block):
    return [line for line in block.text.splitlines() if line.strip()]


def test_each_example_has_as_many_lines_as_the_table_says():
    counted = [
        (section, str(len(lines(there))), str(len(lines(here))))
        for section, (there, here) in examples().items()
    ]
    assert counted == ROWS


def test_the_tools_of_the_table_have_a_section_each_in_its_order():
    headings = re.findall(r"^##+ (.+)$", PAGE.read_text(), re.MULTILINE)
    assert [each.lower().replace(" ", "-") for each in headings[:-1]] == [each for each, *_ in ROWS]


def run_python(section, **names):
    """Run it as a user of the page would, whose code is `names`."""
    _, here = examples()[section]
    exec(compile(here.text, str(here), "exec"), names)


def train():
    time.sleep(0.2)


@pytest.mark.usefixtures("card_of_sampler")
def test_each_epoch_has_its_energy(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_python("sustainableml", num_epochs=2, train=train, test=train)
    printed = capsys.readouterr().out
    assert re.findall(r"^(epoch \d): .*cuda:0 [\d.]+ J", printed, re.MULTILINE) == [
        "epoch 0",
        "epoch 1",
    ]
    kept = CliRunner().invoke(main, ["windows", "readings.parquet"]).output
    assert "epoch 0" in kept
    assert "epoch 1" in kept


@pytest.mark.usefixtures("card_of_sampler")
def test_code_has_its_energy(capsys):
    run_python("aipowermeter", train=train)
    assert re.search(r"^cuda:0 +[\d.]+ J ± ", capsys.readouterr().out, re.MULTILINE)


def test_a_gpu_is_predicted_without_measuring(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, here = examples()["gpu-mangrove"]
    [command] = lines(here)
    ran = CliRunner().invoke(main, command.split()[1:])
    assert ran.exit_code == INCOMPLETE
    assert re.search(r"^h100 .* ± .* J ± .* 13% predicted ", ran.output, re.MULTILINE)
    assert "13 % of this answer" in PAGE.read_text()


@pytest.mark.slow
@pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))
def test_operators_and_copies_are_measured_on_the_simulated_gpu(tmp_path, checkout):
    quick = yaml.safe_load((checkout.root / "tests/study/config.yaml").read_text())
    quick["model_directory"] = "config/models"
    (checkout.root / "config/config.yaml").write_text(yaml.safe_dump(quick))
    environment = gpu.SimulatedGpu(tmp_path / "gpu").environment()
    environment["PYTHONPATH"] = str(ROOT / "scripts")
    printed = {}
    for section in ("ml-operator-profiling", "autotm"):
        _, here = examples()[section]
        for command in lines(here):
            ran = subprocess.run(
                [sys.executable, "-m", *command.split()],
                cwd=checkout.root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert ran.returncode == 0, ran.stderr
            printed[command.split()[1], section] = ran.stdout
    assert re.search(r"alexnet_b32 .* m?J ± ", printed["run", "ml-operator-profiling"])
    assert re.search(r"conv2d\(32x.* m?J ± ", printed["query", "ml-operator-profiling"])
    assert re.search(r"copies in turn, from pinned memory .* m?J ± ", printed["explain", "autotm"])
