"""Configurations, model configs and shapes that make no sense."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from faults import rows
from faults.fault import BAD, POOR, Found, by_hand, fault
from faults.study import STUDY, Study
from faults.verdicts import all_of, explained, held, message, refused, works


def wrong(
    number: str, what: str, change: Callable[[Study], Any], *says: str, accepted: str = BAD
) -> None:
    """A fault: a configuration that is refused before any job starts."""

    def attempt(study: Study) -> Found:
        change(study)
        return refused(study.snakemake("--dry-run", timeout_s=60), *says, accepted=accepted)

    fault(number, what)(attempt)


def top(**changes: Any) -> Callable[[Study], None]:
    return lambda study: study.configure(**changes)


def aimed(**changes: Any) -> Callable[[Study], None]:
    return lambda study: study.aim(**changes)


def measured(**changes: Any) -> Callable[[Study], None]:
    return lambda study: study.measure_with(**changes)


def targets(*names: Any) -> Callable[[Study], None]:
    return top(targets={name: {"device": "cpu", "threads": 1} for name in names})


def model(**document: Any) -> Callable[[Study], Any]:
    return lambda study: study.add_model("", **document)


wrong("31.1", "an unknown key", top(modles=["x"]), "modles", "models")
wrong("31.2", "models is a text", top(models="tiny_mlp"), "models", "tiny_mlp")
wrong("31.3", "models is null", top(models=None), "models", "None|null")
wrong("31.4", "a model is a boolean", top(models=[True]), "models", "(?i)true")
wrong("31.5", "a model is a number", top(models=[1.5]), "models", "1.5")
wrong("31.6", "a model twice", top(models=["tiny_mlp", "tiny_mlp"]), "models", "tiny_mlp")
wrong("31.7", "no models", top(models=[]), "models", "torchvision")
wrong("31.8", "model ../../x", top(models=["../../x"]), "models", r"\.\./x")
wrong("31.9", "a model's name with an umlaut", top(models=["tüny"]), "models", "t(ü|\\\\xfc)ny")
wrong("31.10", "a model's name with a space", top(models=["tiny mlp"]), "models", "tiny mlp")
wrong("31.11", "model -rf", top(models=["-rf"]), "-rf")
wrong("31.12", "a folder that is not there", top(model_directory="gone"), "gone")
wrong("31.13", "target ../x", targets("../x"), "targets", r"\.\./x")
wrong("31.14", "a target that is null", top(targets={"local": None}), "targets.local", "None|null")
wrong("31.15", "device gpu", aimed(device="gpu"), "device", "gpu", "cuda")
wrong("31.16", "threads 0", aimed(threads=0), "threads", "0")
wrong("31.17", "threads 2.5", aimed(threads=2.5), "threads", "2.5")
wrong("31.18", "threads true", aimed(threads=True), "threads", "(?i)true")
wrong("31.19", "batch_s -1", measured(batch_s=-1), "batch_s", "-1")
wrong("31.20", "cache_state Warm", measured(cache_state="Warm"), "cache_state", "Warm", "warm")
wrong("31.21", "min_time_s above max_time_s", measured(min_time_s=9), "min_time_s", "max_time_s")
wrong("31.22", "a torchvision model misspelt", top(torchvision={"names": ["resnet81"]}), "resnet")
wrong(
    "31.23",
    "measured_again -1; batch_size 0",
    top(measured_again=-1, torchvision={"batch_size": 0}),
    "measured_again",
    "batch_size",
)

NAN, INF = float("nan"), float("inf")
wrong("32.1", "timeout_s NaN", measured(timeout_s=NAN), "timeout_s", "(?i)nan")
wrong("32.2", "timeout_s infinite", measured(timeout_s=INF), "timeout_s", "(?i)inf")
wrong("33.1", "max_time_s NaN", measured(max_time_s=NAN), "max_time_s", "(?i)nan")
wrong("33.2", "time_relative_ci NaN", measured(time_relative_ci=NAN), "time_relative_ci", "(?i)nan")


def unquoted(old: str, new: str) -> Callable[[Study], None]:
    """Replace some text of the configuration as it is written."""
    return lambda study: study.config.write_text(study.config.read_text().replace(old, new))


wrong(
    "34.1",
    "`timeout_s: 6e1`, a text in YAML 1.1",
    unquoted("timeout_s: 60", "timeout_s: 6e1"),
    "timeout_s",
    "6e1",
    r"6\.0e\+1|60",
)
wrong(
    "34.2",
    "a target called `on`, true in YAML 1.1",
    unquoted("  local:", "  on:"),
    "targets",
    "(?i)on|true",
    "(?i)quote",
    accepted=POOR,
)
wrong(
    "34.3",
    "power_min_s above power_max_s",
    measured(power_min_s=9.0),
    "power_min_s",
    "power_max_s",
    accepted=POOR,
)


@fault("34.4", "threads 10^9")
def a_thousand_million_threads(study: Study) -> Found:
    study.aim(threads=10**9)
    return refused(study.snakemake(limited=True), "threads", "1000000000")


@fault("34.5", "more threads than the machine has cores", "refused, or said")
def more_threads_than_cores(study: Study) -> Found:
    study.aim(threads=4 * (os.cpu_count() or 1))
    outcome = study.snakemake()
    if outcome.code != 0:
        return refused(outcome, "threads")
    flagged = any("threads" in " ".join(rows.read(path)[0]["flags"] or []) for path in study.rows())
    said = "threads" in outcome.text
    return held(flagged or said, f"exit 0; said {said}, flagged {flagged}", POOR)


@fault("35.1", "timeout_s 0.01", "rows with status timeout")
def too_short_a_timeout(study: Study) -> Found:
    study.measure_with(timeout_s=0.01)
    outcome = study.snakemake()
    statuses = {rows.read(path)[0]["status"] for path in study.rows()}
    return works(outcome, "timeout", wrong="" if statuses == {"timeout"} else f"rows: {statuses}")


if Path("/dev/nvidia0").exists():
    by_hand("35.2", "device cuda on a machine without a GPU", "run it where there is no GPU")
else:

    @fault("35.2", "device cuda on a machine without a GPU")
    def no_gpu(study: Study) -> Found:
        (study.target / "device.json").unlink()
        study.aim(device="cuda")
        return refused(study.snakemake(), "cuda", "CUDA device")


@fault("35.3", "operators: [conv3dd]")
def unknown_operator(study: Study) -> Found:
    study.configure(operators=["conv3dd"])
    return refused(study.snakemake(), "conv3dd", "conv2d")


@fault("35.4", "a negative size in the manifest", "refused, or a failed row")
def negative_size(study: Study) -> Found:
    manifest, path = study.results / "operator_tuples.json", study.rows()[0]
    shape = '"outputs": [{"dtype": "float32", "shape": ['
    lines = manifest.read_text().splitlines()
    changed = [line.replace(shape, f"{shape}-") if path.stem in line else line for line in lines]
    manifest.write_text("\n".join(changed) + "\n")
    path.unlink()
    outcome = study.snakemake()
    if outcome.code == 0:
        status = rows.read(path)[0]["status"]
        return held(status == "error", f"exit 0, a row of status {status}")
    return refused(outcome, "operator_tuples.json")


@fault("35.5", "a model config with !!python/object/apply", "refused, and not run")
def yaml_that_runs(study: Study) -> Found:
    trace = study.root / "ran"
    config = study.add_model("")
    config.write_text(f"factory: !!python/object/apply:os.system ['touch {trace}']\n")
    found = refused(study.snakemake("--dry-run"), "bad.yaml")
    return all_of(found, held(not trace.exists(), "the command of the YAML was run, or was not"))


@fault("36.1", "a batch of 10^12", "refused, or a failed row; no memory is taken")
def huge_batch(study: Study) -> Found:
    study.add_model(
        "from torch import nn\nmake = lambda: nn.Linear(8, 8)\n",
        inputs=[{"shape": [10**12, 8]}],
    )
    outcome = study.snakemake()
    if outcome.code != 0:
        return refused(outcome, "bad", "10{12}|memory|GiB|MiB")
    statuses = {rows.read(path)[0]["status"] for path in study.rows("models")}
    return held("out_of_memory" in statuses, f"exit 0, rows {statuses}")


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@fault("36.2", "explain with an input of several times the memory", "an answer, or a clear refusal")
def huge_input(study: Study) -> Found:
    batch = 6 * memory_bytes() // (3 * 224 * 224 * 4)
    outcome = study.opcost("explain", "resnet18", "--input", f"{batch}x3x224x224")
    if outcome.code in (0, 3) and not outcome.traceback:
        return held("calls" in outcome.text, f"exit {outcome.code}: {message(outcome)}")
    return refused(outcome, "memory|GiB|MiB|size")


@fault("37.1", "explain with an empty input")
def empty_input(study: Study) -> Found:
    return refused(study.opcost("explain", "resnet18", "--input", "0x3x224x224"), "0x3x224x224")


@fault("38.1", "a model config that is not UTF-8")
def not_utf8(study: Study) -> Found:
    study.add_model("").write_bytes("# K\xfchler\nfactory: bad:make\n".encode("latin-1"))
    return refused(study.snakemake("--dry-run"), "bad.yaml", "UTF-8|utf-8")


@fault("38.2", "a model config that grows without end when it is read")
def alias_bomb(study: Study) -> Found:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 10):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    study.add_model("").write_text("\n".join(lines) + "\n")
    return refused(study.snakemake("--dry-run", timeout_s=30, limited=True), "bad.yaml")


def by_yaml(study: Study) -> None:
    """Where a factory of the standard library is named by a model config."""
    document = {
        "factory": "os:system",
        "arguments": {"command": "true"},
        "inputs": [{"shape": [1]}],
    }
    (study.root / STUDY / "models" / "shell.yaml").write_text(yaml.safe_dump(document))


def documented(study: Study) -> Found:
    """Whether the documentation says that who runs a model config runs a program."""
    texts = [
        *study.root.glob("*.md"),
        *study.root.glob("docs/**/*.md"),
        *study.root.glob("config/*.md"),
    ]
    said = [path.name for path in texts if "is a program" in path.read_text()]
    return held(bool(said), f"documented in {said}", POOR)


RUNS = "runs, as any model config does; the documentation says that a model config is a program"


@fault("61.1", "os:system as a factory, with --argument", RUNS)
def system_as_factory(study: Study) -> Found:
    outcome = study.opcost("explain", "os:system", "--argument", "command=true", "--input", "1")
    return all_of(explained(outcome, "os:system|system"), documented(study))


@fault("61.2", "os:system as a factory, in a model config", RUNS)
def system_in_yaml(study: Study) -> Found:
    by_yaml(study)
    study.configure(models=["shell"])
    return all_of(explained(study.snakemake(), "shell"), documented(study))
