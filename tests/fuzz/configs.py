"""Configurations of a study and of a model, with values that make no sense."""

import copy
import random
from pathlib import Path
from typing import Any

import yaml
from opcost.models.configs import load_model
from opcost.study import load_study

from tests.fuzz.documents import INF, NAN, Wrong, anyhow, changed, damaged
from tests.fuzz.tally import Case
from tests.quick_measurement import default_measurement

REPOSITORY = Path(__file__).parent.parent.parent
MODELS = REPOSITORY / "tests" / "study" / "models"
CONFIG: dict[str, Any] = {
    "models": ["tiny_mlp", "tiny_cnn"],
    "model_directory": str(MODELS),
    "targets": {"local": {"device": "cpu", "threads": 1, "tf32": False}},
    "rounds": 3,
    "precision": {"models": 0.02},
    "workers": "warm",
    "operators": "all",
    "max_device_time_s": None,
    "measurement": {"seed": 0, "cache_state": "warm", "min_batches": 6, "max_repeats": 1},
}
MODEL: dict[str, Any] = {
    "factory": "tiny:mlp",
    "arguments": {"width": 16},
    "inputs": [{"shape": [4, 8], "dtype": "float32"}],
    "dtype": "float32",
}
NO_NUMBER = (NAN, INF, -INF, -1, "x", "6e1", None, [], {}, True)
SECONDS = (
    "warm_up_s", "batch_s", "time_relative_ci", "min_time_s", "max_time_s", "model_time_s",
    "power_relative_ci", "power_min_s", "power_max_s", "power_lead_in_max_s", "idle_s",
    "repeat_pause_s", "timeout_s",
)  # fmt: skip
CONFIG_WRONG: tuple[Wrong, ...] = (
    *((("measurement", name), NO_NUMBER) for name in SECONDS),
    *(
        (("measurement", name), (NAN, INF, -1, 1.5, "x", None, True))
        for name in ("seed", "min_batches", "max_repeats")
    ),
    (("measurement", "cache_state"), ("Warm", None, 5, [])),
    (("measurement", "unknown"), (1,)),
    (("measurement",), (None, 5, [], "x")),
    (("targets", "local", "threads"), (0, -1, 1.5, "1", None, NAN, 10**9, True)),
    (("targets", "local", "device"), ("gpu", "", None, 5, "cuda:x", "cpu\n")),
    (("targets", "local", "tf32"), (0, "no", None)),
    (("targets", "../x"), ({"device": "cpu"},)),
    (("targets", "x\n"), ({"device": "cpu"},)),
    (("targets", True), ({"device": "cpu"},)),
    (("targets", 5), ({"device": "cpu"},)),
    (("targets", None), ({"device": "cpu"},)),
    (("targets",), (None, {}, [], "local")),
    (("models",), (None, 5, "tiny_mlp", [5], [None], ["tiny_mlp"] * 2)),
    (("models",), (["../x"], ["gone"], ["tiny_mlp\n"])),
    (("model_directory",), (None, 5, "gone")),
    (("rounds",), (0, 1.5, NAN, INF, "x", None, True)),
    (("precision", "models"), (0, -1, 2, NAN, INF, "x")),
    (("max_device_time_s",), (-1, 0, NAN, INF, "x", True)),
    (("workers",), ("cold", None, 5)),
    (("operators",), (None, [], [5], "some", 5)),
    (("unknown",), (1, None)),
    ((True,), (1, None)),
)  # fmt: skip
MODEL_WRONG: tuple[Wrong, ...] = (
    (("inputs", 0, "shape"), ([-1, 8], [0, 8], [1.5], ["a"], None, 5, [NAN], [True])),
    (("inputs", 0, "dtype"), ("float33", 5, "int64\n")),
    (("inputs", 0, "high"), (-1, 0, "x", NAN)),
    (("inputs", 0), (None, 5, [])),
    (("inputs",), (None, [], 5, {})),
    (("factory",), (None, 5, "nocolon", "a:b:c", "")),
    (("arguments",), (5, [], "x", {5: 5})),
    (("arguments", "width"), (NAN, INF)),
    (("dtype",), ("float33", None, 5)),
    (("unknown",), (1,)),
)


def configs(folder: Path) -> Case:
    """The configuration of a study, or a model config: as data, or as damaged text."""
    settings = {name: getattr(default_measurement(), name) for name in SECONDS}
    config = copy.deepcopy(CONFIG)
    config["measurement"] |= settings
    text = yaml.safe_dump(MODEL).encode()
    source = (MODELS / "tiny.py").read_bytes()
    (folder / "tiny.py").write_bytes(source)

    def study(generator: random.Random) -> str | None:
        if generator.random() < 0.7:
            document, said = changed(config, CONFIG_WRONG, generator)
        else:
            document, said = anyhow(config, generator), None
        load_study(document)
        return said

    def model(generator: random.Random) -> str | None:
        path, said, kind = folder / "net.yaml", None, generator.random()
        if kind < 0.5:
            document, said = changed(MODEL, MODEL_WRONG, generator)
            path.write_text(yaml.safe_dump(document))
        elif kind < 0.7:
            path.write_text(yaml.safe_dump(anyhow(MODEL, generator)))
        else:
            path.write_bytes(damaged(text, generator))
        load_model("net", folder)
        return said

    return lambda generator: generator.choice((study, model))(generator)
