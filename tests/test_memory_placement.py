"""Memory on a NUMA node and in huge pages, as far as this machine has them, and what is refused."""

import subprocess
import sys
import textwrap

import pytest
from opcost.devices.memory_placement import (
    HUGE_PAGES,
    NODES,
    bind_memory,
    free_bytes,
)
from opcost.errors import OpcostError
from opcost.files import first_line
from opcost.memory import UNLIMITED, free_bytes_of

from tests.documents import ROOT


def in_process(code, **variables):
    """What code prints that places memory, which a process cannot undo."""
    program = textwrap.dedent(code)
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": "", "PYTHONPATH": str(ROOT / "scripts"), **variables},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_a_node_that_this_machine_lacks_is_refused_with_those_that_have_memory():
    with pytest.raises(OpcostError, match=r"numa_node is 999, .*; the nodes .* have memory: "):
        bind_memory(999)


@pytest.mark.skipif(first_line(NODES / "has_memory") == "", reason="Linux tells of no nodes")
def test_memory_is_bound_to_a_node():
    code = """
        from opcost.devices import memory_placement as placement
        from opcost.errors import OpcostError
        assert placement.bound_node() is None
        try:
            placement.bind_memory(0)
        except OpcostError as error:
            print(error)
        else:
            print(placement.bound_node(), placement.free_bytes() > 0)
    """
    found = in_process(code)
    assert found == "0 True" or "could not be bound to NUMA node 0" in found


def test_the_free_memory_of_a_node_is_without_file_pages_in_use(tmp_path):
    (tmp_path / "meminfo").write_text(
        "Node 1 MemTotal:       4000 kB\n"
        "Node 1 MemFree:        1000 kB\n"
        "Node 1 Active(file):    500 kB\n"
        "Node 1 Inactive(file):  200 kB\n"
    )
    assert free_bytes_of(tmp_path) == 1200 * 1024
    assert free_bytes_of(tmp_path / "none") == UNLIMITED
    assert 0 < free_bytes() < UNLIMITED


IN_HUGE_PAGES = """
    import torch
    from opcost.devices.memory_placement import use_huge_pages
    from opcost.devices.processor import CpuDevice
    from opcost.memory import bytes_in_huge_pages
    use_huge_pages({wanted})
    before = bytes_in_huge_pages()
    own = CpuDevice().allocate(2**24, torch.float32)
    result = torch.relu(own)
    print(round((bytes_in_huge_pages() - before) / (own.nbytes + result.nbytes), 1))
"""


@pytest.mark.skipif("[never]" in first_line(HUGE_PAGES), reason="Linux has no huge pages")
def test_operands_and_results_lie_in_huge_pages_or_in_none():
    assert in_process(IN_HUGE_PAGES.format(wanted=True)) == "1.0"
    assert in_process(IN_HUGE_PAGES.format(wanted=False)) == "0.0"


@pytest.mark.skipif("[never]" in first_line(HUGE_PAGES), reason="Linux has no huge pages")
def test_a_plan_places_memory_for_one_target_after_the_other():
    code = """
        from opcost.devices.memory_placement import use_huge_pages
        for wanted in (None, True, False, True, None):
            use_huge_pages(wanted)
    """
    assert in_process(code) == ""


@pytest.mark.skipif("[never]" in first_line(HUGE_PAGES), reason="Linux has no huge pages")
def test_pytorch_that_has_decided_before_is_noticed():
    code = """
        import torch
        from opcost.devices.memory_placement import use_huge_pages
        torch.ones(3)
        try:
            use_huge_pages(True)
        except Exception as error:
            print(error)
    """
    found = in_process(code)
    assert f"PyTorch's memory is not in huge pages, and {HUGE_PAGES} says " in found
