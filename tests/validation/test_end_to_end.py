"""Shows on whole models of many families that every tuple runs again from its JSON alone."""

import os
import subprocess
import sys

import pytest
import torch
from opcost.measuring.operands import Rotation, operand_sets
from opcost.models.conditions import inference_conditions
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.zoo import select
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.replay import check_outputs

pytestmark = pytest.mark.slow

IMAGE = InputSpec((1, 3, 224, 224))
MODELS = [
    ModelDefinition(name, (IMAGE,), model=name)
    for name in (
        "resnet50",
        "mobilenet_v3_large",
        "efficientnet_b0",
        "vit_b_16",
        "swin_t",
        "swin_v2_t",
        "convnext_tiny",
        "densenet121",
        "googlenet",
        "shufflenet_v2_x1_0",
        "maxvit_t",
        "deeplabv3_mobilenet_v3_large",
        "lraspp_mobilenet_v3_large",
    )
] + [
    ModelDefinition(name, (InputSpec(shape),), model=name)
    for name, shape in (
        ("r3d_18", (1, 3, 8, 112, 112)),
        ("mvit_v1_b", (1, 3, 16, 224, 224)),
        ("swin3d_t", (1, 3, 8, 224, 224)),
    )
]
BY_NAME = {definition.name: definition for definition in MODELS}

# All of detection, where sizes depend on values, and others of the zoo at their official inputs.
ZOO = {
    **select(["detection"], ["*"], 1),
    **select(
        ["segmentation", "video", "optical_flow"],
        ["fcn_resnet50", "s3d", "r2plus1d_18", "mvit_v2_s", "raft_small"],
        1,
    ),
}


@pytest.mark.parametrize("name", [*BY_NAME, *ZOO])
def test_every_tuple_replays_with_the_recorded_outputs(name, cpu):
    records = [
        record
        for record in extract_model_tuples({**BY_NAME, **ZOO}[name]).tuples
        if record.launches_kernel
    ]
    failures = []
    for record in records:
        operator_tuple = OperatorTuple.from_json(record.operator_tuple.canonical_json)
        try:
            with inference_conditions():
                operands = operand_sets(operator_tuple, cpu, Rotation(0), 0, record.outputs)
                check_outputs(operands.calls[0](), record.outputs)
        except Exception as error:
            failures.append(f"{operator_tuple}: {error}")
    print(f"{name}: {len(records) - len(failures)} of {len(records)} tuples replayed")
    assert not failures


IDS = """
import sys
from test_end_to_end import BY_NAME
from opcost.tuples.extraction import extract_model_tuples
for name in sys.argv[1:]:
    for record in extract_model_tuples(BY_NAME[name]).tuples:
        print(name, record.launches_kernel, record.operator_tuple.tuple_id, record.operator_tuple)
"""


def identities(interpreter, seed="0"):
    here = os.path.dirname(__file__)
    completed = subprocess.run(
        [interpreter, "-c", IDS, *BY_NAME],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"scripts:{here}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout.splitlines()


def test_ids_are_the_same_in_every_process():
    assert identities(sys.executable, "1") == identities(sys.executable, "2")


def test_ids_are_the_same_in_another_torch():
    """Set OTHER_PYTHON to an interpreter with another torch and what opcost needs."""
    other = os.environ.get("OTHER_PYTHON")
    if other is None:
        pytest.skip("OTHER_PYTHON is not set")
    here, there = set(identities(sys.executable)), set(identities(other))
    for line in sorted(here ^ there):
        print("only in", torch.__version__ if line in here else "the other torch", line)
    print(f"{len(here & there)} of {len(here | there)} (model, tuple) pairs are the same")
    # One torch fills with a number, another with a tensor of no dimensions that it lifts first.
    different = {line.split()[3].partition("(")[0] for line in here ^ there}
    assert different <= {"fill_", "lift_fresh", "reshape", "view"}
