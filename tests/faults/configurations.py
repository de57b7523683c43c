"""Configurations, model configs and shapes that make no sense."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import rows
from tests.faults.fault import BAD, POOR, Found, by_hand, fault
from tests.faults.study import Study
from tests.faults.verdicts import held, refused, works


def wrong(
    number: str, what: str, change: Callable[[Study], Any], *says: str, accepted: str = BAD
) -> None:
    """A fault: a configuration that is refused before any job starts."""

    def attempt(study: Study) -> Found:
        change(study)
        return refused(study.snakemake("--dry-run", timeout_s=60), *says, accepted=accepted)

    fault(number, what, measured=False)(attempt)


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
    "rounds 0; batch_size 0",
    top(rounds=0, torchvision={"batch_size": 0}),
    "rounds",
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
