"""Model configs, manifests and inputs that are hostile, huge, empty or damaged."""

import os

import yaml

from tests.faults import rows
from tests.faults.fault import POOR, Found, fault
from tests.faults.study import STUDY, Study
from tests.faults.verdicts import all_of, explained, held, message, refused, works


@fault("35.4", "a negative size in the manifest", "refused, or a failed row")
def negative_size(study: Study) -> Found:
    manifest, path = study.manifest, study.rows()[0]
    shape = '"outputs": [{"dtype": "float32", "shape": ['
    lines = manifest.read_text().splitlines()
    changed = [line.replace(shape, f"{shape}-") if path.stem in line else line for line in lines]
    manifest.write_text("\n".join(changed) + "\n")
    path.unlink()
    outcome = study.snakemake()
    if manifest.read_text() != "\n".join(changed) + "\n":
        return works(outcome)  # made again, from the models
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
    outcome = study.opcost("explain", "os:system", "--argument", "command=echo ran", "--input", "1")
    return all_of(explained(outcome, "os:system|system"), documented(study))


@fault("61.2", "os:system as a factory, in a model config", RUNS)
def system_in_yaml(study: Study) -> Found:
    by_yaml(study)
    study.configure(models=["shell"])
    return all_of(explained(study.snakemake(), "shell"), documented(study))
