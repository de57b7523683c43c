"""Results and workspaces lie elsewhere from call to call, in memory that was used before."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opcost.heap import Spacers
from opcost.operands import OperandSets
from opcost.replay import ReplayCall
from opcost.workload import OperatorWorkload

MIB = 2**20


@given(st.integers(1, 16))
def test_sizes_are_whole_pages_spread_over_the_span(mebibytes):
    span = mebibytes * MIB
    sizes = list(itertools.islice(Spacers(span).sizes, 50))
    assert all(0 <= size < span and size % 4096 == 0 for size in sizes)
    ordered = sorted(sizes)
    gaps = [later - earlier for earlier, later in itertools.pairwise([*ordered, span])]
    assert max(gaps) < span / 12


@pytest.fixture
def addresses(cpu):
    """A workload whose operator notes where its workspace lies."""
    found = []

    def operator():
        found.append(torch.empty(4 * MIB, dtype=torch.uint8).data_ptr())

    return found, OperatorWorkload(OperandSets((ReplayCall(operator, (), {}),), 0, 0))


def test_with_spacers_a_call_finds_another_workspace(addresses):
    found, workload = addresses
    workload.move_workspaces(128 * MIB)
    workload.run(20)
    assert len(set(found)) > 3
    assert max(found) - min(found) > 8 * MIB
