"""What replayed operators work on: realistic values, distinct memory, and no surprises in place."""

import itertools
import math
from dataclasses import replace
from mmap import PAGESIZE
from resource import RUSAGE_SELF, getrusage

import pytest
import torch
import torchvision  # noqa: F401  registers its operators
from opcost.devices.device import OutOfMemory
from opcost.devices.processor import CpuDevice
from opcost.measuring import workload
from opcost.measuring.operands import MEMORY_SHARE, Rotation, degenerate, operand_sets
from opcost.measuring.workload import OperatorWorkload, UnsuitableOperands, operator_workload
from opcost.tuples.description import describe, describe_tensor
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.parsing import parse
from opcost.tuples.replay import UnsupportedOperator, tensors_in_tree
from opcost.tuples.tuple_record import IN_CORE, RESULTS, TupleRecord
from opcost.tuples.work import minimal_bytes

aten, vision = torch.ops.aten, torch.ops.torchvision
STILL = Rotation(0)


def tuple_of(operator, *args, **kwargs):
    return describe(operator, args, kwargs)


def first_tensors(operator_tuple, cpu):
    call = operand_sets(operator_tuple, cpu, STILL, seed=0).calls[0]
    return tensors_in_tree((call.args, call.kwargs))


def test_floats_are_normal_and_drawn_from_the_seed(cpu):
    relu = tuple_of(aten.relu.default, torch.empty(100, 100))
    [first], [again] = first_tensors(relu, cpu), first_tensors(relu, cpu)
    assert torch.equal(first, again)
    assert abs(first.mean()) < 0.05
    assert abs(first.std() - 1) < 0.05
    [other] = tensors_in_tree(operand_sets(relu, cpu, STILL, seed=1).calls[0].args)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("operator", ["relu", "max_pool2d"])
@pytest.mark.parametrize("tensor", ["2x5x20x5", "2x5x20x5:bfloat16@channels_last"])
def test_a_share_of_the_elements_is_zero(cpu, share, operator, tensor):
    rest = ", kernel_size=2" if operator == "max_pool2d" else ""
    asked = parse(f"{operator}({tensor}[zeros={share}]{rest})")
    [found], [again] = first_tensors(asked, cpu), first_tensors(asked, cpu)
    assert (found == 0).sum() == round(share * found.numel())
    assert torch.equal(found, again)


@pytest.mark.parametrize("layout", ["(1,10)", "(10,0)", "(40,3)"])
def test_of_a_strided_tensor_a_share_of_what_is_in_memory_is_zero(cpu, layout):
    [found] = first_tensors(parse(f"relu(10x10@{layout}[zeros=0.3])"), cpu)
    assert (found == 0).sum() == 30


def test_zeros_are_in_other_places_with_another_seed_and_in_each_operand(cpu):
    asked = parse("mul(30x30[zeros=0.5], 30x30[zeros=0.5])")
    first, second = first_tensors(asked, cpu)
    assert not torch.equal(first == 0, second == 0)
    other = operand_sets(asked, cpu, STILL, seed=1).calls[0].args[0]
    assert not torch.equal(first == 0, other == 0)


def test_variances_are_positive(cpu):
    channel = torch.empty(8)
    image = torch.empty(1, 8, 2, 2)
    batch_norm = tuple_of(
        aten.batch_norm.default, image, channel, channel, channel, channel, False, 0.1, 1e-5, True
    )
    variance = operand_sets(batch_norm, cpu, STILL, 0).calls[0].args[4]
    assert (variance > 0).all()


INTEGERS = torch.zeros(500, dtype=torch.int64)


@pytest.mark.parametrize(
    ("operator_tuple", "limit"),
    [
        (tuple_of(aten.embedding.default, torch.empty(7, 3), INTEGERS), 7),
        (tuple_of(aten.index.Tensor, torch.empty(5, 9), [None, INTEGERS]), 9),
        (tuple_of(aten.index_select.default, torch.empty(5, 9), 0, INTEGERS), 5),
        (tuple_of(aten.gather.default, torch.empty(500, 9), 1, INTEGERS[:, None]), 9),
        (tuple_of(aten.embedding_renorm_.default, torch.empty(7, 3), INTEGERS, 1.0, 2.0), 7),
        (tuple_of(aten.take_along_dim.default, torch.empty(500, 9), INTEGERS[:, None], 1), 9),
        (tuple_of(aten.put.default, torch.empty(5, 9), INTEGERS, torch.empty(500)), 45),
        (tuple_of(aten.index_copy.default, torch.empty(5), 0, INTEGERS, torch.empty(500)), 5),
        (
            tuple_of(
                *(aten.scatter_reduce.two, torch.empty(500, 9), 1, INTEGERS[:, None]),
                *(torch.empty(500, 1), "sum"),
            ),
            9,
        ),
        (
            tuple_of(
                *(aten.max_unpool2d.default, torch.empty(1, 5, 10, 10)),
                *(INTEGERS.view(1, 5, 10, 10), [20, 30]),
            ),
            600,
        ),
        (tuple_of(aten.bucketize.Tensor, INTEGERS, torch.zeros(9, dtype=torch.int64)), 9),
        (tuple_of(aten.cross_entropy_loss.default, torch.empty(500, 9), INTEGERS), 9),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_indices_stay_in_range_and_use_all_of_it(cpu, operator_tuple, limit):
    call = operand_sets(operator_tuple, cpu, STILL, 0).calls[0]
    indices = max(
        (tensor for tensor in tensors_in_tree(call.args) if tensor.dtype == torch.int64), key=len
    )
    assert indices.min() == 0
    assert indices.max() >= 0.98 * (limit - 1)
    assert indices.max() < limit
    call()


MASK = torch.zeros(40, 50, dtype=torch.bool)


@pytest.mark.parametrize(
    ("operator_tuple", "shapes"),
    [
        (tuple_of(aten.where.default, MASK), [(137,), (137,)]),
        (tuple_of(aten.where.default, MASK), [(0,), (0,)]),
        (tuple_of(aten.nonzero.default, MASK.t()), [(137, 2)]),
        (tuple_of(aten.masked_select.default, torch.empty(40, 50), MASK), [(137,)]),
        (tuple_of(aten.index.Tensor, torch.empty(40, 50, 3), [MASK]), [(137, 3)]),
        (tuple_of(aten.index.Tensor, torch.empty(3, 40), [None, MASK[:, 0]]), [(3, 13)]),
        (
            tuple_of(aten.index_put_.default, torch.empty(40, 50), [MASK], torch.empty(137)),
            [(40, 50)],
        ),
        (tuple_of(aten._unique2.default, INTEGERS), [(17,), (0,), (0,)]),
        (tuple_of(vision.nms.default, torch.empty(500, 4), torch.empty(500), 0.5), [(73,)]),
        (tuple_of(vision.nms.default, torch.empty(4, 500).t(), torch.empty(500), 0.7), [(500,)]),
    ],
)
def test_results_whose_sizes_depend_on_values_come_out_at_the_recorded_sizes(
    cpu, operator_tuple, shapes
):
    outputs = [TensorSpec(shape, "int64") for shape in shapes]
    call = operand_sets(operator_tuple, cpu, STILL, 0, outputs).calls[0]
    assert [tuple(tensor.shape) for tensor in tensors_in_tree(call())] == shapes


def replayed(operator, *args, **kwargs):
    """The tensors of a call as opcost replays it, after the real call, whose sizes it gives."""
    outputs = tuple(map(describe_tensor, tensors_in_tree(operator(*args, **kwargs))))
    record = TupleRecord(tuple_of(operator, *args, **kwargs), outputs, True, None, 0)
    call = operator_workload(record, CpuDevice(), "warm", 0).operands.calls[0]
    return tensors_in_tree((call.args, call.kwargs))


WIDE = torch.rand(4, 30)
SQUARE = torch.eye(30) + 0.1
SIXES = torch.full((30,), 6)


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (aten.normal.Tensor_Tensor, [WIDE, WIDE]),
        (aten.normal.float_Tensor, [0.0, WIDE]),
        (aten.multinomial.default, [WIDE, 5]),
        (aten.bernoulli.default, [WIDE]),
        (aten.bernoulli_.Tensor, [WIDE.clone(), WIDE]),
        (aten.binomial.default, [9 * WIDE, WIDE]),
        (aten.poisson.default, [WIDE]),
        (aten._standard_gamma.default, [WIDE]),
        (aten._sample_dirichlet.default, [WIDE]),
        (aten.quantile.default, [WIDE, torch.tensor([0.1, 0.9])]),
        (aten.linalg_cholesky.default, [SQUARE]),
        (aten.cholesky_inverse.default, [SQUARE]),
        (aten.linalg_lu_solve.default, [SQUARE, SIXES.int(), SQUARE]),
        (aten.searchsorted.Tensor, [WIDE.sort().values, WIDE]),
        (aten.histogram.bins_tensor, [WIDE, WIDE[0].sort().values]),
        (aten.floor_divide.default, [SIXES, SIXES]),
        (aten.remainder.Tensor, [SIXES, SIXES]),
        (aten.one_hot.default, [SIXES]),
        (aten.bincount.default, [SIXES]),
        (aten.unique_consecutive.default, [SIXES]),
        (aten.unique_dim.default, [WIDE.round(), 1]),
        (aten.repeat_interleave.self_Tensor, [WIDE, torch.tensor([3, 0, 2, 6]), 0]),
        (aten.repeat_interleave.self_Tensor, [WIDE, torch.tensor([3]), 1]),
        (aten.repeat_interleave.Tensor, [SIXES]),
        (aten.masked_select.default, [WIDE, WIDE[:, :1] > 0.5]),
        (aten.masked_select.default, [WIDE, (WIDE[:, :1] > 0.5).expand(4, 30)]),
        (aten.masked_scatter.default, [WIDE, torch.eye(4, 30).bool(), torch.rand(4)]),
        (aten.cosine_embedding_loss.default, [WIDE, WIDE, torch.ones(4).long()]),
        (
            aten.fractional_max_pool2d.default,
            [WIDE.view(1, 1, 4, 30), [2, 2], [2, 9], WIDE[:1, :2].view(1, 1, 2)],
        ),
        (
            aten.ctc_loss.Tensor,
            [WIDE.log_softmax(1)[:, None], SIXES[:2], SIXES[:1] - 2, SIXES[:1] - 4],
        ),
    ],
    ids=lambda value: str(value) if callable(value) else "",
)
def test_operators_take_the_values_that_are_drawn_for_them(operator, args):
    assert all(tensor.isfinite().all() for tensor in replayed(operator, *args))


def test_lengths_add_up_to_what_they_divide():
    durations = torch.tensor([3, 1, 2, 9])
    repeated = replayed(aten.repeat_interleave.self_Tensor, WIDE, durations, 0)
    assert repeated[1].sum() == 15
    reduce = {"lengths": torch.tensor([3, 0, 1])}
    assert replayed(aten.segment_reduce.default, WIDE, "max", **reduce)[1].sum() == 4


def test_packed_sequences_have_their_number_of_steps_and_places():
    sequences, lengths = torch.rand(4, 10, 16), torch.tensor([10, 7, 3, 1])
    pack = aten._pack_padded_sequence.default
    drawn = replayed(pack, sequences, lengths, True)[1]
    assert (drawn.max(), drawn.sum(), len(drawn)) == (10, 21, 4)
    assert (drawn.diff() <= 0).all()
    data, sizes = pack(sequences, lengths, True)
    assert replayed(aten._pad_packed_sequence.default, data, sizes, True, 0.0, 10)[1].sum() == 21
    state = [torch.zeros(1, 4, 32)] * 2
    weights = [torch.rand(128, 16), torch.rand(128, 32), torch.rand(128), torch.rand(128)]
    drawn = replayed(aten.lstm.data, data, sizes, state, weights, True, 1, 0.0, False, False)[1]
    assert (drawn.max(), drawn.sum(), len(drawn)) == (4, 21, 10)
    assert (drawn.diff() <= 0).all()


@pytest.mark.parametrize("targets", [torch.ones(3, 8).long(), torch.ones(15).long()])
def test_labels_of_ctc_are_no_blanks_and_have_the_length_of_their_targets(targets):
    frames = torch.rand(40, 3, 29).log_softmax(-1)
    lengths = torch.full((3,), 40), torch.tensor([8, 5, 2])
    _, labels, ends, drawn = replayed(aten._ctc_loss.Tensor, frames, targets, *lengths, 28)
    assert labels.min() >= 0
    assert labels.max() < 28
    assert ends.tolist() == [40] * 3
    assert drawn.tolist() == ([8] * 3 if targets.dim() == 2 else [8, 4, 3])


def test_integers_of_unknown_meaning_are_refused_with_the_operators_name_and_a_remedy(cpu):
    operator = aten._jagged_to_padded_dense_forward.default
    unknown = tuple_of(operator, WIDE, [SIXES[:3]], [9])
    said = r"_jagged\w+: .* its argument 'offsets' \(3:int64\) .* docs/how_to/operators.md"
    with pytest.raises(UnsupportedOperator, match=said):
        operand_sets(unknown, cpu, STILL, 0)


def test_an_operator_that_refuses_its_values_fails_with_its_name_and_a_remedy():
    singular = torch.empty(1, 1).expand(3, 3)
    inverse = tuple_of(aten.linalg_inv.default, singular)
    record = TupleRecord(inverse, (describe_tensor(torch.eye(3)),), True, None, 0)
    said = "linalg_inv, on .*: .*is singular.* docs/how_to/operators.md"
    with pytest.raises(UnsuitableOperands, match=said):
        operator_workload(record, CpuDevice(), "warm", 0)


def test_bags_are_compared_by_their_sums_because_fake_tensors_have_other_integers():
    args = [torch.rand(7, 3), INTEGERS, torch.tensor([0, 200, 500]), False, 0, False, None, True]
    *found, _ = map(describe_tensor, aten.embedding_bag.default(*args))
    outputs = (*found, TensorSpec((9,), "int64"))
    record = TupleRecord(tuple_of(aten.embedding_bag.default, *args), outputs, True, None, 0)
    assert operator_workload(record, CpuDevice(), "warm", 0).rotation == 1


def test_regions_are_boxes_within_the_image(cpu):
    operator = vision.roi_align.default
    features, regions = torch.empty(2, 8, 25, 30), torch.empty(300, 5)
    operator_tuple = tuple_of(operator, features, regions, 0.25, 7, 7, 2, False)
    call = operand_sets(operator_tuple, cpu, STILL, 0).calls[0]
    image, left, top, right, bottom = call.args[1].unbind(1)
    assert set(image.tolist()) == {0, 1}
    assert ((left >= 0) & (left < right) & (right <= 30 / 0.25)).all()
    assert ((top >= 0) & (top < bottom) & (bottom <= 25 / 0.25)).all()
    assert call().shape == (300, 8, 7, 7)


@pytest.mark.parametrize("ends", [False, True])
def test_bags_begin_in_order_and_cover_all_indices(cpu, ends):
    weight, offsets = torch.empty(7, 3), torch.zeros(5 + ends, dtype=torch.int64)
    given = (weight, INTEGERS, offsets, False, 0, False, None, ends)
    call = operand_sets(tuple_of(aten.embedding_bag.default, *given), cpu, STILL, 0).calls[0]
    [found] = [tensor for tensor in tensors_in_tree(call.args) if len(tensor) == 5 + ends]
    assert found.tolist() == [0, 100, 200, 300, 400] + [500] * ends
    assert call()[0].shape == (5, 3)


def test_sets_are_distinct_memory_of_equal_values(cpu):
    add = tuple_of(aten.add.Tensor, torch.empty(64, 64), torch.empty(64, 64))
    operands = operand_sets(add, cpu, Rotation(2**20), seed=0)
    assert len(operands.calls) == 32
    assert operands.footprint_bytes == 2**20
    tensors = [tensor for call in operands.calls for tensor in call.args[:2]]
    assert len({tensor.data_ptr() for tensor in tensors}) == 64
    assert all(torch.equal(call.args[0], tensors[0]) for call in operands.calls)


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_a_processor_has_no_memory_of_a_host(cpu, memory):
    with pytest.raises(UnsupportedOperator, match="this target is a processor"):
        operand_sets(parse(f"copy_(8, 8[{memory}])"), cpu, STILL, seed=0)


def test_small_tensors_do_not_share_cache_lines(cpu):
    relu = tuple_of(aten.relu.default, torch.empty(3))
    calls = operand_sets(relu, cpu, Rotation(10_000), seed=0).calls
    starts = sorted(call.args[0].data_ptr() for call in calls)
    gaps = {later - earlier for earlier, later in itertools.pairwise(starts)}
    assert gaps == {512}


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        torch.empty(6, 8)[:, 2:5],
        torch.empty(4, 1).expand(4, 5),
        torch.empty(0, 3),
        torch.empty(()),
    ],
    ids=["channels_last", "slice", "expanded", "empty", "scalar"],
)
def test_sets_have_the_layout_of_the_tuple(cpu, tensor):
    negate = tuple_of(aten.neg.default, tensor)
    for call in operand_sets(negate, cpu, Rotation(3000), seed=0).calls:
        assert describe_tensor(call.args[0]) == describe_tensor(tensor)
        call()


@pytest.mark.parametrize("name", ["silu_", "hardswish_", "mish_", "gelu_", "relu_", "hardtanh_"])
def test_values_survive_being_changed_in_place_for_ever(cpu, name):
    operator = getattr(aten, name).default
    call = operand_sets(tuple_of(operator, torch.empty(1000)), cpu, STILL, 0).calls[0]
    call()
    settled = call.args[0].clone()
    for _ in range(1000):
        call()
    assert not degenerate(call)
    torch.testing.assert_close(call.args[0], settled)


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64])
def test_arithmetic_in_place_stays_finite(cpu, name, dtype):
    tensor = torch.empty(1000, dtype=dtype)
    call = operand_sets(tuple_of(getattr(aten, name).Tensor, tensor, tensor), cpu, STILL, 0).calls[
        0
    ]
    for _ in range(20_000):
        call()
    assert not degenerate(call)
    assert call.args[0].std() > 0.5


def test_values_that_run_off_are_noticed(cpu):
    call = operand_sets(tuple_of(aten.exp_.default, torch.empty(100)), cpu, STILL, 0).calls[0]
    for _ in range(5):
        call()
    assert degenerate(call)


class SmallDevice(CpuDevice):
    """A processor that claims little memory."""

    def free_memory_bytes(self):
        return 10_000_000


def test_memory_limits_the_sets_and_too_little_is_an_error():
    relu = OperatorTuple("aten.relu.default", (("self", TensorSpec((1_000_000,), "float32")),))
    operands = operand_sets(relu, SmallDevice(), Rotation(2**30), seed=0)
    assert operands.footprint_bytes <= 7_000_000
    large = OperatorTuple("aten.relu.default", (("self", TensorSpec((9_000_000,), "float32")),))
    with pytest.raises(OutOfMemory, match="the arguments need 34 MiB; cpu has 7 MiB available"):
        operand_sets(large, SmallDevice(), Rotation(0), seed=0)


def test_pooling_gets_what_a_relu_leaves(cpu):
    pooling = tuple_of(aten.max_pool2d.default, torch.empty(1, 8, 32, 32), [3, 3])
    [image] = first_tensors(pooling, cpu)
    assert image.min() == 0
    assert 0.4 < (image == 0).float().mean() < 0.6


def test_in_state_model_weights_rotate_and_activations_stay(cpu):
    linear = tuple_of(aten.linear.default, torch.empty(2, 64), torch.empty(8, 64), torch.empty(8))
    sets = operand_sets(linear, cpu, Rotation(8 * 2560, ("weight", "bias")), 0)
    assert len(sets.calls) == 8
    images, weights, biases = (
        {call.args[position].data_ptr() for call in sets.calls} for position in range(3)
    )
    assert (len(images), len(weights), len(biases)) == (1, 8, 8)
    assert sets.footprint_bytes == 8 * 2560 + 512


def test_results_are_written_to_other_memory_in_turn(cpu):
    image = torch.empty(1, 4, 16, 16)
    relu = tuple_of(aten.relu.default, image)
    rotation = Rotation(0, (), result_slots=10)
    operands = operand_sets(relu, cpu, rotation, 0, [describe_tensor(image)])
    assert (len(operands.calls), operands.kept_results) == (1, 10)
    memory = [tensor for result in operands.result_memory() for tensor in result]
    assert len({each.data_ptr() for each in memory}) == 10
    assert {each.nbytes for each in memory} == {4096}
    replayed = OperatorWorkload(operands)
    replayed.run(25)
    assert len({each.data_ptr() for each in replayed._results}) == 10
    in_context = tuple_of(aten.relu_.default, image)
    assert operand_sets(in_context, cpu, rotation, 0, [describe_tensor(image)]).kept_results == 0


def test_an_operator_whose_name_ends_like_one_in_place_has_results(cpu):
    mask = torch.ones(1024, dtype=torch.bool)
    both = tuple_of(aten.__and__.Tensor, mask, mask)
    rotation = Rotation(0, (), result_slots=4)
    assert operand_sets(both, cpu, rotation, 0, [describe_tensor(mask)]).kept_results == 4


def test_many_results_of_a_call_go_to_fewer_places(cpu):
    roots = tuple_of(aten._foreach_sqrt.default, [torch.ones(1)] * 64)
    outputs = [describe_tensor(torch.ones(1))] * 64
    rotation = Rotation(0, (), result_slots=2**14)
    assert operand_sets(roots, cpu, rotation, 0, outputs).kept_results == 2**14 // 64


@pytest.mark.parametrize(
    ("is_processor", "parameters", "state", "places"),
    [
        (True, (), "model", 14),
        (False, (), "model", 0),  # a GPU's multiprocessors keep nothing between kernels
        (True, (IN_CORE,), "model", 0),
        (True, (), "warm", 0),
        (True, (), "cold", 0),
    ],
)
def test_as_in_a_model_other_memory_is_used_between_two_results_in_the_same(
    is_processor, parameters, state, places, monkeypatch
):
    monkeypatch.setattr(workload, "footprint", lambda _: 96 * 2**20)
    record = record_of_relu(2**17, parameters)
    device = CpuDevice()
    monkeypatch.setattr(device, "kind", replace(device.kind, is_processor=is_processor))
    assert operator_workload(record, device, state, 0).operands.kept_results == places


def record_of_relu(elements, parameters=()):
    image = torch.empty(elements)
    relu = tuple_of(aten.relu.default, image)
    return TupleRecord(relu, (describe_tensor(image),), True, 0, 8 * elements, parameters)


@pytest.mark.parametrize("parameters", [(), ("self",), ("self", "(results)")])
def test_results_have_the_memory_that_arguments_leave(parameters, monkeypatch):
    free_bytes = 10 * 2**20
    device = CpuDevice()
    monkeypatch.setattr(device, "free_memory_bytes", lambda: free_bytes)
    record = record_of_relu(2**18, parameters)
    operands = operator_workload(record, device, "model", 0).operands
    results = (operands.kept_results + 1) * 2**20
    assert operands.footprint_bytes + results <= MEMORY_SHARE * free_bytes + 2**20


@pytest.mark.parametrize(
    ("result_bytes", "between_bytes"),
    [
        (2**16, 7 * 2**20),  # weights pass between small results, too
        (2**20, 10 * 2**20),
        (2**24, 96 * 2**20),  # which evicts it from any cache
    ],
)
def test_more_memory_is_used_between_large_results_than_between_small_ones(
    result_bytes, between_bytes, monkeypatch
):
    monkeypatch.setattr(workload, "footprint", lambda _: 96 * 2**20)
    record = record_of_relu(result_bytes // 4)
    kept = operator_workload(record, CpuDevice(), "model", 0).operands.kept_results
    assert kept == math.ceil(between_bytes / result_bytes)


@pytest.mark.parametrize("parameters", [(), (RESULTS,)])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "kl_div"])
def test_a_loss_finds_its_temporaries_where_the_call_before_left_them(cpu, name, parameters):
    """Kept results would split that memory, and each call would take new pages."""
    values = torch.empty(200_000)
    loss = tuple_of(getattr(aten, name).default, values, values)
    outputs = (describe_tensor(torch.empty(())),)
    record = TupleRecord(loss, outputs, True, 0, minimal_bytes(loss, outputs), parameters)
    replayed = operator_workload(record, cpu, "model", 0)
    replayed.run(20)
    before = getrusage(RUSAGE_SELF).ru_minflt
    replayed.run(50)
    assert getrusage(RUSAGE_SELF).ru_minflt - before < 50 * values.nbytes / PAGESIZE / 10


@pytest.mark.parametrize(("columns", "places"), [(2, 1792), (63, 1792), (65, 0)])
def test_results_that_are_a_small_part_of_what_a_call_moves_are_not_kept(
    columns, places, cpu, monkeypatch
):
    monkeypatch.setattr(workload, "footprint", lambda _: 96 * 2**20)
    total = tuple_of(aten.sum.dim_IntList, torch.empty(1024, columns), [1])
    outputs = (describe_tensor(torch.empty(1024)),)
    record = TupleRecord(total, outputs, True, 0, minimal_bytes(total, outputs))
    assert operator_workload(record, cpu, "model", 0).operands.kept_results == places


def test_weights_that_rotate_are_other_memory_as_well(monkeypatch):
    monkeypatch.setattr(workload, "footprint", lambda _: 96 * 2**20)
    image, weight = torch.empty(1, 512), torch.empty(1024, 512)
    linear = tuple_of(aten.linear.default, image, weight)
    outputs = (describe_tensor(torch.empty(1, 1024)),)
    moved = minimal_bytes(linear, outputs)
    record = TupleRecord(linear, outputs, True, 0, moved, ("weight",))
    kept = operator_workload(record, CpuDevice(), "model", 0).operands.kept_results
    assert kept == math.ceil(7 * 2**20 / (weight.nbytes + 4096))


def test_in_state_model_each_call_takes_other_entries_of_a_table(cpu, monkeypatch):
    monkeypatch.setattr(workload, "footprint", lambda _: 2**20)
    indices, table = torch.empty(16, dtype=torch.int64), torch.empty(2**16, 64)
    embedding = tuple_of(aten.embedding.default, table, indices)
    call_bytes = 2 * 16 * 64 * 4 + indices.nbytes
    outputs = (describe_tensor(torch.empty(16, 64)),)
    assert minimal_bytes(embedding, outputs) == call_bytes
    record = TupleRecord(embedding, outputs, True, 0, call_bytes, ("weight",))
    operands = operator_workload(record, cpu, "model", 0).operands
    assert len(operands.calls) == math.ceil(2**20 / call_bytes)
    taken = [set(call.args[1].tolist()) for call in operands.calls]
    assert len(set().union(*taken)) > 0.95 * sum(map(len, taken))
    of_activations = replace(record, parameters=())
    assert len(operator_workload(of_activations, cpu, "model", 0).operands.calls) == 1


def test_indices_have_as_many_values_as_there_is_room_for_beside_the_table():
    table, indices = torch.empty(2**16, 25), torch.empty(16, dtype=torch.int64)
    embedding = tuple_of(aten.embedding.default, table, indices)
    rotation = Rotation(2**20, ("weight",), selections=2000)
    calls = operand_sets(embedding, SmallDevice(), rotation, 0).calls
    assert len(calls) == (7_000_000 - table.nbytes) // 512


def test_sets_that_evict_nothing_are_not_made(cpu):
    linear = tuple_of(aten.linear.default, torch.empty(2, 64), torch.empty(8, 64), torch.empty(8))
    all_sets = 2**14 * 2560
    for least_bytes, count in ((all_sets, 2**14), (all_sets + 1, 1)):
        rotation = Rotation(2**30, ("weight", "bias"), least_bytes=least_bytes)
        assert len(operand_sets(linear, cpu, rotation, 0).calls) == count


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        ((128, 8), (4, 8, 16), [32, 64, 96, 128]),
        ((2, 8), (4, 8, 16), [0, 1, 1, 2]),  # a token of two experts leaves the others out
        ((8, 128), (128, 16), [32, 64, 96, 128]),
        ((4, 8, 16), (16, 64), [16, 32, 48, 64]),
    ],
)
def test_groups_of_a_product_share_all_of_its_rows(first, second, ends, cpu):
    """Random ends would leave most rows out, and take a fraction of the time."""
    given = (torch.empty(first), torch.empty(second), torch.empty(4, dtype=torch.int32))
    call = operand_sets(tuple_of(aten._grouped_mm.default, *given), cpu, STILL, 0).calls[0]
    assert call.args[2].tolist() == ends
