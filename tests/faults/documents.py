"""JSON files and pickles beside the rows, damaged or with values that cannot be."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import rows
from tests.faults.fault import BAD, GOOD, POOR, Found, fault
from tests.faults.study import Outcome, Study
from tests.faults.values import remade
from tests.faults.verdicts import all_of, file_and_remedy, held, refused, works


def json_file(
    number: str, what: str, name: str, change: Callable[[Any], Any] | str, *says: str,
    accepted: str = BAD, job: bool = True,
) -> None:  # fmt: skip
    """A fault: a JSON file beside the rows, changed by a function or replaced by a text."""

    def attempt(study: Study) -> Found:
        path = next(study.results.glob(name))
        if callable(change):
            document = json.loads(path.read_text())
            path.write_text(json.dumps(change(document) or document))
        else:
            path.write_text(change)
        if job:
            study.rows()[0].unlink()
        damaged = path.read_bytes()
        outcome = remade(study)
        if outcome.code == 0 and path.read_bytes() != damaged:
            return Found(GOOD, "exit 0: the file was made again from what it is made of")
        return refused(outcome, file_and_remedy(path), *says, accepted=accepted)

    fault(number, what)(attempt)


DEVICE, SENSOR = "local/*/device.json", "local/*/sensor.json"
AGAIN, MANIFEST = "local/*/overhead_2.json", "studies/*/operator_tuples.json"


def setting(name: str, value: Any) -> Callable[[dict], dict]:
    return lambda document: document | {name: value}


def without(name: str) -> Callable[[dict], dict]:
    return lambda document: {key: value for key, value in document.items() if key != name}


def first_call(value: Any) -> Callable[[dict], dict]:
    """The overhead of a call, as the first of the processes found it."""

    def change(document: dict) -> dict:
        samples = document["overhead"]
        return document | {"overhead": [[value, *samples[0][1:]], *samples[1:]]}

    return change


NAN, NUMBER = float("nan"), "(?i)nan"
json_file("23.1", "device.json is no JSON", DEVICE, "{")
json_file("23.2", "device.json without lock_key", DEVICE, without("lock_key"), "lock_key")
json_file("23.3", 'device.json: overhead is "x"', DEVICE, setting("overhead", "x"), "overhead")
json_file("23.4", "device.json: overhead is NaN", DEVICE, first_call(NAN), NUMBER)
json_file(
    "24.1", "device.json: quiet_s is NaN", DEVICE, setting("quiet_s", NAN), NUMBER, accepted=POOR
)
json_file(
    "24.2", "device.json: quiet_s is -1", DEVICE, setting("quiet_s", -1), "quiet_s", accepted=POOR
)
json_file(
    "25.1",
    "device.json of another processor",
    DEVICE,
    setting("device_name", "Other CPU"),
    "Other CPU",
)
json_file("26.1", "device.json: a call costs -5 s", DEVICE, first_call(-5.0), "-5", job=False)
json_file("26.2", "overhead_2.json: a call costs -1 s", AGAIN, first_call(-1.0), "-1", job=False)


@fault("26.3", "overhead_2.json of another device")
def overhead_of_another_device(study: Study) -> Found:
    path = study.target / "overhead_2.json"
    document = json.loads(path.read_text())
    known = [key for key in document if key != "overhead"]
    other = {
        key: f"other {key}" if isinstance(document[key], str) else document[key] for key in known
    }
    path.write_text(json.dumps(document | other))
    outcome = remade(study)
    if outcome.code == 0 and not known:
        return Found(BAD, "accepted: the file does not even say of which device it is")
    return refused(outcome, file_and_remedy(path))


json_file("27.1", "overhead_2.json is no JSON", AGAIN, "{", job=False)
json_file("27.2", "overhead_2.json is a list", AGAIN, "[]", job=False)
json_file("27.3", "sensor.json is no JSON", SENSOR, "{")
json_file("27.4", "operator_tuples.json is no JSON", MANIFEST, "{")
json_file("28.1", "overhead_2.json: NaN", AGAIN, first_call(NAN), NUMBER, job=False)
json_file("28.2", 'overhead_2.json: "a"', AGAIN, first_call("a"), job=False)
json_file("28.3", "sensor.json without content", SENSOR, '{"schema_version": 1}', accepted=POOR)


@fault(
    "28.4", "operators/: a row of the target `other`", "refused, or a row of its folder's target"
)
def row_of_another_target(study: Study) -> Found:
    path = study.rows()[0]
    rows.change(path, target="other")
    outcome = remade(study)
    if outcome.code != 0:
        return refused(outcome, file_and_remedy(path), "other")
    targets = [row["target"] for row in rows.read(study.results / "database.parquet")]
    return held(targets == ["local"] * 6, f"targets of the database: {targets}", POOR)


def pickled(study: Study, change: Callable[[dict], None]) -> tuple[Path, Outcome]:
    """Change what a model's extraction holds, and make the tables."""
    path = study.extraction("tiny_cnn")
    document = pickle.loads(path.read_bytes())
    change(document)
    path.write_bytes(pickle.dumps(document, protocol=4))
    return path, remade(study)


class Shell:
    """What a pickle would run."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


@fault("51.1", "a pickle that runs os.system", "refused, and not run")
def pickle_that_runs(study: Study) -> Found:
    path, trace = study.extraction("tiny_cnn"), study.root / "ran"
    path.write_bytes(pickle.dumps(Shell(f"touch {trace}")))
    found = refused(study.snakemake(), file_and_remedy(path))
    return all_of(found, held(not trace.exists(), "the command of the pickle was run, or was not"))


@fault("51.2", "a pickle that claims a terabyte")
def pickle_of_a_terabyte(study: Study) -> Found:
    path = study.extraction("tiny_cnn")
    path.write_bytes(b"\x80\x04\x8e" + (10**12).to_bytes(8, "little") + b"abc")
    return refused(study.snakemake(timeout_s=60, limited=True), file_and_remedy(path))


@fault("52.1", "a pickle with calls -1 and 99, FLOPs -5 and NaN")
def pickle_of_wrong_values(study: Study) -> Found:
    found = []
    for change in (
        lambda document: document["calls"][0].__setitem__(0, -1),
        lambda document: document["calls"][0].__setitem__(0, 99),
        lambda document: document["tuples"][0].update(flops=-5),
        lambda document: document["tuples"][0].update(flops=float("nan")),
    ):
        content = study.extraction("tiny_cnn").read_bytes()
        path, outcome = pickled(study, change)
        found.append(refused(outcome, file_and_remedy(path)))
        path.write_bytes(content)
    return all_of(*found)


@fault("52.2", "a pickle of another model")
def pickle_of_another_model(study: Study) -> Found:
    path = study.extraction("tiny_cnn")
    shutil.copy(path.with_name("tiny_mlp.pkl"), path)
    outcome = remade(study)
    if pickle.loads(path.read_bytes())["model"] == "tiny_cnn":
        return works(outcome)  # extracted again
    return refused(outcome, "tiny_cnn", "tiny_mlp", "(?i)delete")
