"""Which weights are copied in for each pass, under a budget of memory, and what that costs."""

import itertools
import json
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opcost.commands import INCOMPLETE, main
from opcost.costs.explanation import explain
from opcost.costs.offload import choose, copy_cost, measured_copies, offload, offload_memory
from opcost.costs.offload_text import offload_as_text
from opcost.databases.database import read_database
from opcost.errors import OpcostError
from opcost.memory import memory_size
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, TIME
from opcost.tuples.extraction import extract_module_tuples, tuple_record
from opcost.tuples.operator_tuple import TensorSpec
from opcost.tuples.parsing import parse
from opcost.tuples.places import Place
from opcost.tuples.recorder import Call
from torch import nn

from tests.comparisons import ON_A_GPU, database, row

LATENCY_S, BYTES_PER_S = 5e-6, 20e9
SIZES = [4**exponent * 2**10 for exponent in range(1, 8)]

# --- the cost of copies ------------------------------------------------------------------------


def copy_row(size, memory="pinned", **changes):
    time_s = LATENCY_S + size / BYTES_PER_S
    return row(time_s, power_w=200.0, **ON_A_GPU) | changes


COPIES = {size: copy_row(size) for size in SIZES}


@pytest.mark.parametrize(
    ("size", "seconds"),
    [
        (SIZES[2], LATENCY_S + SIZES[2] / BYTES_PER_S),
        (3 * SIZES[2], LATENCY_S + 3 * SIZES[2] / BYTES_PER_S),
        (8, LATENCY_S + SIZES[0] / BYTES_PER_S),
        (3 * SIZES[-1], 3 * (LATENCY_S + SIZES[-1] / BYTES_PER_S)),
    ],
    ids=["measured", "between", "below", "beyond"],
)
def test_a_copy_costs_what_those_of_its_size_or_near_it_cost(size, seconds):
    time = copy_cost(COPIES, size, TIME)
    assert time.value == pytest.approx(seconds)
    assert copy_cost(COPIES, size, ENERGY).value == pytest.approx(200 * seconds)
    if size > SIZES[-1]:
        assert (time.low, time.high) == (None, None)
    else:
        assert time.low < seconds < time.high
        assert (time.low == 0) == (size < SIZES[0])


def test_how_far_small_copies_are_from_linear_does_not_widen_the_interval_of_large_ones():
    rows = COPIES | {SIZES[0]: copy_row(20 * SIZES[1])}
    assert copy_cost(rows, 3 * SIZES[-2], TIME).relative_half_width < 0.02
    assert copy_cost(rows, 3 * SIZES[0], TIME).relative_half_width > 0.2


def test_without_an_energy_at_one_of_the_sizes_copies_have_none():
    without = {"energy_j": None, "energy_reason": "no meter"}
    assert copy_cost({8: copy_row(8, **without), 64: copy_row(64)}, 32, ENERGY) is None


@pytest.mark.parametrize(
    "call",
    [
        "copy_(64, 64)",
        "copy_(64[pinned], 64, non_blocking=True)",  # to the host
        "copy_(64, 64[pinned])",  # waits for each
        "copy_(64, 64:float16[pinned], non_blocking=True)",  # converts
        "copy_(8x8@(1,8), 8x8[pinned], non_blocking=True)",  # rearranges
        "copy_(64, 64[zeros=0.9,pinned], non_blocking=True)",  # other values
        "copy_(256:int8, 256:int8[pinned], non_blocking=True)",  # another dtype
    ],
)
def test_other_copies_tell_nothing(call):
    assert measured_copies([copy_row(256) | {"canonical_json": parse(call).canonical_json}]) == {}


# --- the choice --------------------------------------------------------------------------------

items = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 50).map(float)), min_size=1, max_size=9
)


@given(items, st.integers(0, 200))
def test_the_weights_that_stay_fit_beside_a_buffer_for_the_largest_other(items, more):
    room = max(size for size, _ in items) + more
    copied = choose(items, room)
    stay = sum(size for place, (size, _) in enumerate(items) if place not in copied)
    assert stay + max((items[place][0] for place in copied), default=0) <= room
    assert (copied == set()) == (sum(size for size, _ in items) <= room)


@pytest.mark.parametrize(
    ("room", "copied"),
    [
        (60, set()),
        (30, {0, 1, 2}),
        (50, {0, 2}),  # a small buffer, because the largest stays
        (40, {1, 2}),  # what is slowest for each byte stays
    ],
)
def test_what_saves_most_seconds_for_each_byte_stays(room, copied):
    assert choose([(10, 1.0), (30, 2.0), (20, 1.5)], room) == copied


# --- a model -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    """Weights of 4 MiB, 1 MiB and 256 KiB, with biases."""
    sizes = [1024, 1024, 256, 256]
    layers = (nn.Linear(*pair) for pair in itertools.pairwise(sizes))
    return extract_module_tuples(nn.Sequential(*layers), [torch.ones(1, 1024)], "net")


def measured(path, model, memories=("pinned",), sizes=SIZES, **changes):
    """A database of the model on a GPU, with copies from these memories of the host."""
    on_a_gpu = {**ON_A_GPU, "host_time_s": 1e-5, "host_time_ci_low_s": 0.9e-5} | {
        "host_time_ci_high_s": 1.1e-5,
        "conditions_json": '{"target": {"device": "cuda"}}',
    }
    on_a_gpu |= changes
    database(path, [model], **on_a_gpu)
    rows = read_database(path).to_pylist()
    for memory, size in itertools.product(memories, sizes):
        asked = parse(f"copy_({size // 4}, {size // 4}[{memory}], non_blocking=True)")
        spec = TensorSpec((size // 4,), "float32")
        record = tuple_record(Call(asked, (spec,), True, (), Place("", "")))
        factor = 1 if memory == "pinned" else 3
        time_s = factor * (LATENCY_S + size / BYTES_PER_S)
        times = {"time_s": time_s, "time_ci_low_s": time_s, "time_ci_high_s": time_s}
        rows.append(rows[0] | records.operator_columns(record) | times)
    records.write(path, schemas.DATABASE, rows)
    return path


def answer_of(model, budget, path):
    [found] = offload(offload_memory(model, budget), explain(model, [path]))
    return found


def test_a_model_that_fits_has_nothing_to_copy(model, tmp_path):
    memory = offload_memory(model, 2**30)
    assert memory.fits
    path = measured(tmp_path / "d.parquet", model, memories=())
    found = answer_of(model, 2**30, path)
    assert found.is_complete
    assert found.found == []
    assert "All of it fits" in offload_as_text(memory, [found], 10)


def test_the_largest_weights_are_copied_in_and_their_cost_is_added(model, tmp_path):
    path = measured(tmp_path / "d.parquet", model, ("pinned", "pageable"))
    # Room for a buffer of the first layer, and for the last one to stay.
    room = model.weights[0].bytes + model.weights[2].bytes
    budget = room + model.activation_peak_bytes + 8 * 1024
    found = answer_of(model, budget, path)
    pinned, pageable = found.found
    assert found.staying_bytes + found.buffer_bytes <= found.memory.room_bytes
    assert [each.module_path for each in pinned.copied] == ["0", "1"]
    sizes = [weight.bytes for each in pinned.copied for weight in each.weights]
    seconds = sum(LATENCY_S + max(size, SIZES[0]) / BYTES_PER_S for size in sizes)
    assert pinned.copies_cost(TIME).value == pytest.approx(seconds, rel=0.01)
    assert pageable.copies_cost(TIME).value == pytest.approx(3 * seconds, rel=0.01)
    alone = found.explanation.estimate.time
    assert pinned.sequential(TIME).value == pytest.approx(
        alone.value + pinned.copies_cost(TIME).value
    )
    assert pinned.overlapped_time.value == max(alone.value, pinned.copies_cost(TIME).value)
    assert pinned.sequential(TIME).low < pinned.sequential(TIME).value
    assert pinned.energy_reason == "simulated: no meter"
    document = json.loads(json.dumps(found.to_document()))
    assert document["found"][0]["copied"][0]["weights"] == ["0.weight", "0.bias"]
    text = offload_as_text(found.memory, [found], 1)
    assert "copies in turn, from pageable memory" in text
    assert "1 other" in text
    assert "No energy: simulated: no meter" in text


def test_without_measured_copies_there_is_a_reason_and_the_command(model, tmp_path):
    found = answer_of(model, 5 * 2**20, measured(tmp_path / "d.parquet", model, ("pinned",), ()))
    assert not found.is_complete
    assert found.to_document()["found"] == []
    assert "opcost run copies_to_device --device cuda" in found.reason


def test_a_processor_has_nothing_to_offload_to(model, tmp_path):
    path = database(
        tmp_path / "d.parquet", [model], conditions_json='{"target": {"device": "cpu"}}'
    )
    found = answer_of(model, 5 * 2**20, path)
    assert found.is_complete
    assert "it is a processor" in found.reason


def test_a_budget_below_the_largest_weights_and_activations_is_an_error_with_the_numbers(model):
    least = offload_memory(model, 2**30).least_bytes
    assert offload_memory(model, least).room_bytes == model.weights[0].bytes
    with pytest.raises(OpcostError, match=f"largest weights .of 0. 4.198 MB. .*least {least}B"):
        offload_memory(model, least - 1)


def test_a_model_of_unknown_definition_is_refused(model):
    with pytest.raises(OpcostError, match="no model with weights"):
        offload_memory(replace(model, definition=None), 2**30)


# --- the command -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"), [("2GiB", 2**31), ("500MB", 5 * 10**8), ("1.5 kB", 1500), ("7B", 7)]
)
def test_sizes_of_memory_have_a_unit(text, size):
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["2 apples", "-2GiB", "0GiB", "2"])
def test_what_is_no_size_of_memory_is_refused(text):
    ran = CliRunner().invoke(main, ["explain", "alexnet", f"--offload={text}"])
    assert ran.exit_code == 2
    assert f"{text!r} is no size of memory: give a number above 0 and a unit" in ran.output


def test_the_command_adds_it_to_the_explanation(tmp_path):
    command = ["explain", "alexnet", "--offload", "200MB"]
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code in (0, INCOMPLETE), ran.output
    assert "Memory within 200 MB: inputs 602.1 kB" in ran.output
    assert "it is a processor" in ran.output
    document = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert {each["offload"]["fits"] for each in document["targets"]} == {False}


def test_requests_to_language_models_are_refused():
    ran = CliRunner().invoke(main, ["explain", "llama_tiny_chat", "--offload", "1GiB"])
    assert ran.exit_code == 1
    assert "requests to a language model" in ran.output
