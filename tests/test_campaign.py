"""A campaign on an offline host: what it takes along, how it keeps to its time, what comes home."""

import argparse
import ast
import csv
import importlib.metadata
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from campaign.__main__ import main as campaign_main
from campaign.__main__ import positive, setting
from campaign.archive import PARTS, pack, unpack
from campaign.peers import compared, of_three
from campaign.piece import Piece, Step, run_steps
from campaign.steps import named_models, python, settings_of_card, steps
from campaign.wheels import AT_HOME, describe, lacking, read_host
from opcost.errors import OpcostError

from tests.checkout import ARGUMENTS, REPOSITORY, edit, stamps
from tests.documents import ROOT
from tests.warm_python import with_warm_jobs

PINS = re.findall(r"^[\w.-]+==[^\s#]+", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
GPU_IMAGE = ("torch", "torchvision", "nvidia-ml-py", "pandas", "pyarrow", "numpy", "scipy")
GPU_IMAGE += ("jinja2", "pytest", "hypothesis", "PyYAML", "click", "psutil")


def host(*packages, python="3.12.3", **versions):
    return {
        "python": python,
        "machine": "x86_64",
        "glibc": "2.39",
        "packages": {**dict.fromkeys(packages), **versions},
    }


def imported(paths):
    """Distributions that the files import."""
    found = set()
    for node in (node for path in paths for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    distributions = importlib.metadata.packages_distributions()
    return {each.lower() for name in found for each in distributions.get(name, [])}


def test_what_a_host_lacks_is_brought_and_what_it_has_is_not():
    brought = lacking(PINS, host(*GPU_IMAGE))
    assert brought["snakemake"] == importlib.metadata.version("snakemake")
    assert {"jsonschema", "rpds-py", "snakemake-interface-common"} <= brought.keys()
    assert not brought.keys() & {each.lower() for each in GPU_IMAGE}


def test_a_version_that_a_brought_package_refuses_is_brought_as_well():
    assert "pyyaml" not in lacking(PINS, host(*GPU_IMAGE, PyYAML="6.0.1"))
    assert "pyyaml" in lacking(PINS, host(*GPU_IMAGE, PyYAML="5.1"))


def test_requirements_are_those_of_the_hosts_python():
    assert "exceptiongroup" not in lacking(PINS, host(python="3.13.0"))
    assert describe()["packages"]["torch"] == importlib.metadata.version("torch")
    assert lacking(PINS, describe()) == {}


def test_all_that_is_imported_there_is_brought_or_belongs_to_pytorch():
    files = {*ROOT.glob("scripts/**/*.py"), *ROOT.glob("workflow/*.py")}
    files -= {*ROOT.glob("scripts/opcost/report/*.py")}
    there = imported(files)
    optional = {"opcost", "duckdb", "timm", "transformers", "triton"}
    assert there - optional <= lacking(PINS, host()).keys()
    assert not there & set(AT_HOME)


REFUSE = """
import sys
for name in ("altair", "vl_convert", "itables"):
    sys.modules[name] = None  # importing it fails
"""


@pytest.mark.parametrize("script", sorted(path.name for path in ROOT.glob("scripts/*.py")))
def test_all_tables_are_made_without_the_packages_of_the_report(script):
    tree = ast.parse((ROOT / "scripts" / script).read_text())
    imports = [each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    code = REFUSE + "\n".join(map(ast.unparse, imports))
    status = subprocess.run([sys.executable, "-c", code], capture_output=True).returncode
    assert (status == 0) == (script != "report.py")


def step(name, said, least_s=1.0, finished=True, most_s=1e9):
    def run(piece, seconds):
        said.append((name, round(seconds)))
        return "", finished

    return Step(name, least_s, run, most_s)


def piece(root, seconds, **changes):
    return Piece(time.monotonic() + seconds, root, **changes)


def test_steps_are_done_once_and_in_order(tmp_path):
    kept, ran = [], []
    first = piece(tmp_path, 100, keep=lambda: kept.append(len(ran)))
    assert not run_steps(first, [step("a", ran), step("b", ran, finished=False)])
    assert [name for name, _ in ran] == ["a", "b"]
    assert kept == [1, 2]
    ran.clear()
    assert run_steps(piece(tmp_path, 100), [step("a", ran), step("b", ran)])
    assert ran == [("b", 100)]


def test_a_step_for_which_too_little_time_is_left_is_for_the_next_piece(tmp_path):
    ran = []
    assert not run_steps(piece(tmp_path, 50), [step("a", ran, least_s=60), step("b", ran)])
    assert ran == []
    assert "a: needs 60 s; 50 s are left" in (tmp_path / "campaign/record/log.txt").read_text()


def test_a_step_may_take_no_longer_in_all_pieces_together(tmp_path):
    ran = []
    steps = [step("a", ran, finished=False, most_s=40, least_s=5)]
    limited = piece(tmp_path, 100, taken_s={"a": 30.0})
    run_steps(limited, steps)
    assert ran == [("a", 10)]
    limited.taken_s["a"] = 36.0
    assert run_steps(limited, steps)


class Commanded(Piece):
    """Runs nothing: commands end with the given statuses."""

    def run(self, command, seconds, output=None, ending_s=0.0):
        self.commands.append(command)
        return self.statuses.pop(0)


def study(root, *statuses):
    """The models of each run of the study, and what was said."""
    commanded = Commanded(time.monotonic() + 600, root)
    commanded.commands, commanded.statuses = [], list(statuses)
    step = next(each for each in steps(["config/gpu.yaml"], {}, 600, 30) if each.name == "study")
    run_steps(commanded, [step])
    models = [
        [json.loads(word[7:]) for word in command if word.startswith("models=[")]
        for command in commanded.commands
    ]
    return models, (root / "campaign/record/log.txt").read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "models"),
    [("[tiny_mlp, tiny_cnn]", ["tiny_mlp", "tiny_cnn"]), ('["tiny_mlp"]', ["tiny_mlp"])],
)
def test_models_are_given_as_to_snakemake(given, models):
    assert named_models(["config/gpu.yaml"], {"models": given}) == models


@pytest.mark.parametrize("given", ["[resnet18", "resnet18", "", "{a: 1}", "[2026-01-01]"])
def test_models_that_are_no_list_are_refused(given):
    with pytest.raises(
        OpcostError, match=re.escape(f"--config models={given}: give a list of names")
    ):
        named_models(["config/gpu.yaml"], {"models": given})


def test_a_setting_without_a_value_is_refused():
    with pytest.raises(OpcostError, match="--config models: give KEY=VALUE"):
        setting("models")


@pytest.mark.parametrize(
    "content", ['{"done": [', "{}", '{"done": 3, "taken_s": {}}', '{"done": [], "taken_s": []}']
)
def test_a_damaged_record_is_refused_with_the_remedy(tmp_path, content):
    (tmp_path / "campaign/record").mkdir(parents=True)
    (tmp_path / "campaign/record/state.json").write_text(content)
    with pytest.raises(OpcostError, match="delete it to begin again"):
        piece(tmp_path, 1)


def test_one_model_after_the_other_joins_the_study(tmp_path):
    models, said = study(tmp_path, 0, 0, None)
    assert models[0] == [["resnet50_b32"]]
    assert models[1] == [["resnet50_b32", "mobilenet_v2_b32"]]
    assert "study of vit_b_16_b32 stopped" in said
    models, said = study(tmp_path, 0, 0, 0, 0, 0)
    assert [len(each[0]) for each in models[:-1]] == [3, 4, 5, 6]
    assert models[-1] == []  # as it is configured
    assert "study complete" in said
    assert study(tmp_path)[0] == []


@pytest.mark.parametrize("answer", ["sys.exit(0)", "None"])
def test_what_does_not_end_is_stopped_in_time(tmp_path, answer):
    code = f"import signal, sys, time; signal.signal({int(signal.SIGTERM)}, lambda *_: {answer})"
    code += "; print('began', flush=True); time.sleep(60)"
    start_s = time.monotonic()
    command = [sys.executable, "-c", code]
    assert piece(tmp_path, 60).run(command, 3, tmp_path / "output", ending_s=1) is None
    assert time.monotonic() - start_s < 10
    assert (tmp_path / "output").read_text().startswith("began")


@pytest.mark.slow
def test_a_piece_that_is_stopped_keeps_its_rows_and_the_next_goes_on_from_them(
    finished, prepared, tmp_path, monkeypatch
):
    for name, value in with_warm_jobs(os.environ).items():
        monkeypatch.setenv(name, value)
    edit(
        prepared.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(warm_up_s=3.0),
    )
    for before_it_is_asked_s in (10, 15, 25):
        command = python("snakemake", *ARGUMENTS)
        stopped = piece(prepared.root, 60).run(command, before_it_is_asked_s + 30, ending_s=30)
        assert stopped is None
        if brought := stamps(prepared):
            break
    assert 1 <= len(brought) < 6
    parts = pack(prepared.root, tmp_path, 10_000)
    assert max(path.stat().st_size for path in parts) <= 10_000
    assert len(parts) > 1
    bare = prepared.copied(tmp_path / "bare")
    for name in ("results", "logs", ".snakemake"):
        (bare.root / name).rename(tmp_path / name.strip("."))
    unpack(tmp_path, bare.root)
    unpacked = stamps(bare)
    assert unpacked.keys() == brought.keys()
    missing = min(stamps(finished).keys() - brought.keys())
    wanted = [f"results/local/operators/{name}" for name in (*brought, missing)]
    assert bare.started("--", *wanted).count("benchmark_operator") == 1
    assert unpacked.items() <= stamps(bare).items()


def test_results_of_another_device_are_not_mixed(tmp_path):
    roots = [tmp_path / name for name in ("a", "b")]
    for root in roots:
        device = root / "results/local/device.json"
        device.parent.mkdir(parents=True)
        device.write_text(root.name)
    pack(roots[0], tmp_path, 2**20)
    unpack(tmp_path, roots[0])
    with pytest.raises(OpcostError, match="of another device"):
        unpack(tmp_path, roots[1])
    assert (roots[1] / "results/local/device.json").read_text() == "b"


@pytest.mark.parametrize("lost", ["campaign/record", "results"])
def test_a_host_that_lost_a_part_goes_on_from_home(tmp_path, monkeypatch, lost):
    """Copying `campaign/` for each piece deletes the record, which is in it. Steps whose results
    are lost count as not done.
    """
    sensor, state = tmp_path / "results/local/sensor.json", tmp_path / "campaign/record/state.json"
    for path in (sensor, state):
        path.parent.mkdir(parents=True)
    sensor.write_text("{}")
    state.write_text('{"done": ["sensor"], "taken_s": {}}')
    home = tmp_path / "campaign/home"
    home.mkdir()
    pack(tmp_path, home, 2**20)
    state.write_text('{"done": ["sensor", "tests", "study"], "taken_s": {}}')
    shutil.rmtree(tmp_path / lost)
    done = []
    monkeypatch.setattr("campaign.__main__.run_steps", lambda piece, _: done.extend(piece.done))
    monkeypatch.setattr("campaign.steps.named_models", lambda *_: [])
    monkeypatch.setattr(sys, "argv", ["campaign", "run", "--minutes", "1", "--out", "out"])
    monkeypatch.chdir(tmp_path)
    campaign_main()
    assert done == ["sensor"]
    assert sensor.exists()


def test_an_empty_folder_brings_nothing_home(tmp_path):
    with pytest.raises(OpcostError, match=re.escape(f"{PARTS}00")):
        unpack(tmp_path, REPOSITORY)


@pytest.mark.parametrize("damage", [lambda data: data[:-40], lambda data: b"x" + data[1:]])
def test_an_incomplete_archive_is_refused_and_leaves_nothing(tmp_path, damage):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").write_text("x" * 1000)
    [part] = pack(tmp_path, tmp_path, 2**20)
    part.write_bytes(damage(part.read_bytes()))
    with pytest.raises(OpcostError, match="not a complete archive"):
        unpack(tmp_path, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_what_was_measured_since_is_not_replaced_by_an_earlier_archive(tmp_path):
    row = tmp_path / "results/a.parquet"
    row.parent.mkdir()
    row.write_text("first")
    pack(tmp_path, tmp_path, 2**20)
    row.write_text("measured again")
    row.with_name("b.parquet").write_text("further")
    later = row.stat().st_mtime + 5
    os.utime(row, (later, later))
    unpack(tmp_path, tmp_path)
    assert row.read_text() == "measured again"
    os.utime(row, (1, 1))
    unpack(tmp_path, tmp_path)
    assert row.read_text() == "first"


def test_a_link_in_an_archive_is_refused_and_replaces_nothing(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/a.parquet").write_text("measured")
    for kind in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE):
        with tarfile.open(tmp_path / f"{PARTS}00", "w:gz") as archive:
            member = tarfile.TarInfo("results/a.parquet")
            member.type, member.linkname = kind, "results/b.parquet"
            archive.addfile(member)
        with pytest.raises(OpcostError, match="which no campaign writes"):
            unpack(tmp_path, tmp_path)
    assert (tmp_path / "results/a.parquet").read_text() == "measured"


def test_files_that_share_their_content_travel_each(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/a").write_text("x")
    os.link(tmp_path / "results/a", tmp_path / "results/b")
    pack(tmp_path, tmp_path, 2**20)
    assert unpack(tmp_path, tmp_path / "home").startswith("2 files unpacked, 0 newer")
    assert (tmp_path / "home/results/b").read_text() == "x"
    os.utime(tmp_path / "home/results/b", (2e9, 2e9))
    assert unpack(tmp_path, tmp_path / "home").startswith("1 files unpacked, 1 newer")


def test_a_results_folder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/a").write_text("x")
    pack(tmp_path, tmp_path, 2**20)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/results").symlink_to(tmp_path / "results")
    with pytest.raises(OpcostError, match="cannot be unpacked in"):
        unpack(tmp_path, tmp_path / "home")


def test_parts_stay_until_all_new_ones_are_written(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").write_text("measured")
    pack(tmp_path, tmp_path, 10)

    def full(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="no space"):
            pack(tmp_path, tmp_path, 10)
    unpack(tmp_path, tmp_path / "home")
    assert (tmp_path / "home/logs/a.log").read_text() == "measured"


def test_an_archive_of_many_parts_is_put_together_in_their_order(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").write_bytes(os.urandom(2000))
    assert len(pack(tmp_path, tmp_path, 10)) > 100
    unpack(tmp_path, tmp_path / "home")
    unpacked = (tmp_path / "home/logs/a.log").read_bytes()
    assert unpacked == (tmp_path / "logs/a.log").read_bytes()


@pytest.mark.parametrize("name", ["../evil", "README.md", "results/../../evil", "results_old/x"])
def test_an_archive_with_other_files_is_refused(tmp_path, name):
    with tarfile.open(tmp_path / f"{PARTS}00", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(OpcostError, match="which no campaign writes"):
        unpack(tmp_path, tmp_path / "home")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"python": "3.12.1"}',
        json.dumps(host() | {"packages": []}),
        json.dumps(host() | {"glibc": ""}),
        json.dumps(host(torch=5)),
        json.dumps(host(numpy="not a version!")),
    ],
)
def test_a_description_of_a_host_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "host.json").write_text(content)
    with pytest.raises(OpcostError, match="campaign describe"):
        read_host(tmp_path / "host.json")


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "some"])
def test_minutes_are_a_number_above_zero(text):
    with pytest.raises((ValueError, argparse.ArgumentTypeError)):
        positive(text)


@pytest.fixture
def measured(finished, monkeypatch):
    """The row of an operator of a study, in whose folder this is."""
    monkeypatch.chdir(finished.root)
    return of_three(Path("results/local"))[0]


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
    assert of_torch["needed_s"] > 0
    looped = by_peer["loop beside nvidia-smi"]
    assert looped["energy_j"] == pytest.approx(50 * looped["time_s"])


def test_the_record_of_the_card_does_not_say_which_one_it_is(tmp_path, monkeypatch):
    card = tmp_path / "nvidia-smi"
    card.write_text(
        "#!/bin/sh\necho '  Product Name : A'\necho '  Serial Number : 17'\n"
        "echo '  GPU UUID : GPU-61'\necho '  GPU PDI : 0x61'\n"
        "echo '  Current Power Limit : 700 W'\n"
    )
    card.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    settings_of_card(piece(tmp_path, 1))
    [record] = tmp_path.glob("campaign/record/nvidia-smi.txt")
    assert record.read_text() == "  Product Name : A\n  Current Power Limit : 700 W\n"


def test_a_procedure_that_is_not_installed_is_a_row_with_the_reason(measured, cpu, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert "nvidia-smi" in compared(measured, cpu, loop_s=0.1)[-1]["reason"]


def test_models_whose_kernels_cannot_be_recorded_are_rows_with_the_reason(measured, tmp_path):
    command = python("campaign.kernels", "results/local", str(tmp_path / "kernels.csv"))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "scripts")}
    command += ["--models", "tests/study/models"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    with (tmp_path / "kernels.csv").open() as file:
        rows = list(csv.DictReader(file))
    without = {row["model"] for row in rows if "no kernels" in row["reason"]}
    assert without == {"tiny_mlp", "tiny_cnn"}
    assert "GPU" not in {row["where"] for row in rows}
