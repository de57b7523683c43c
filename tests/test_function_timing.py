"""`opcost.time`, `compare` and `time_over`: any function, timed in this process.

Functions here loop or sleep for a made-up time. Tests assert ratios and words.
"""

import random
import re
import subprocess
import sys
import time
from functools import partial

import opcost
import pytest
import torch
from opcost.errors import OpcostError

from tests.simulated_cuda import gpu

COLD = {"max_time_s": 0.12, "precision": 0.5}
QUICK = {**COLD, "cache": "warm"}


def loop(rounds):
    for _ in range(rounds):
        pass


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_one_call_gives_a_time_with_its_interval_in_one_line():
    found = opcost.time(torch.mm, torch.randn(8, 8), torch.randn(8, 8), **COLD)
    assert 0 < found.time.low <= found.time.value <= found.time.high
    assert min(found.runs_s) <= found.time.value <= max(found.runs_s)
    line = str(found).splitlines()[0]
    assert re.fullmatch(r".+ \(cold cache, \d+ calls, 1 thread, .+\)", line)
    assert (found.cache, found.device, found.host_time) == ("cold", "cpu", None)


def test_energy_is_a_number_or_a_reason():
    found = opcost.time(loop, 1000, **QUICK)
    assert (found.energy is None) == (found.energy_reason is not None)
    without = opcost.time(loop, 1000, energy=False, **QUICK)
    assert (without.energy, without.energy_reason) == (None, "not measured: energy is False")


def test_a_time_grows_with_the_work():
    small, large = (opcost.time(loop, rounds, **QUICK).time for rounds in (2_000, 20_000))
    assert 3 < large.value / small.value < 30


@pytest.mark.parametrize(("first", "second", "verdict"), [(3, 1, "slower"), (1, 3, "faster")])
def test_functions_of_different_cost_are_ordered(first, second, verdict):
    one, other = (partial(loop, 2_000 * each) for each in (first, second))
    found = opcost.compare(one, other, max_time_s=0.3)
    assert found.verdict == verdict
    assert found.ratio.value == pytest.approx(first / second, rel=0.4)
    assert str(found).startswith(f"{verdict}: the first takes ")


def test_a_function_is_about_as_fast_as_itself_on_the_same_copies_of_its_arguments():
    seen = []

    def look(x):
        seen.append(x.data_ptr())
        loop(1000)

    found = opcost.compare(look, look, torch.randn(2**22), max_time_s=0.2)
    assert found.ratio.value == pytest.approx(1, rel=0.3)
    assert len(set(seen)) > 1


def test_cold_calls_get_copies_and_warm_calls_the_tensors_themselves():
    x, seen = torch.randn(2**20), set()
    opcost.time(lambda x: seen.add(x.data_ptr()), x, **COLD)
    assert x.data_ptr() not in seen
    assert len(seen) > 1
    seen.clear()
    opcost.time(lambda x: seen.add(x.data_ptr()), x, **QUICK)
    assert seen == {x.data_ptr()}


def test_copies_keep_strides_and_shared_memory():
    x = torch.randn(8, 8)

    def check(whole, part):
        assert (part.stride(), part.data_ptr()) == ((8, 2), whole.data_ptr())

    opcost.time(check, x, x[:, ::2], **COLD)


def test_without_tensors_among_the_arguments_the_cache_is_warm_and_the_notes_say_so():
    x = torch.randn(100)
    found = opcost.time(lambda: torch.relu(x), **COLD)
    assert found.cache == "warm"
    assert "warm cache instead of cold: no argument is a tensor" in found.notes


def test_small_arguments_may_stay_cached_and_the_notes_say_so():
    found = opcost.time(torch.relu, torch.ones(1), **COLD)
    assert any("copies of arguments" in note and "may stay cached" in note for note in found.notes)


def test_arguments_that_cannot_be_copied_are_used_as_they_are():
    x = torch.ones(4, requires_grad=True) * 2
    found = opcost.time(torch.relu, x, **COLD)
    assert found.cache == "warm"
    assert any("cannot be copied" in note for note in found.notes)


def test_a_function_that_changes_its_arguments_is_timed_with_a_note():
    x = torch.ones(10)
    found = opcost.time(torch.Tensor.add_, x, 1, **COLD)
    assert "it changes its arguments in place: each call finds other values" in found.notes
    assert torch.equal(x, torch.ones(10))  # copies changed


def test_a_function_whose_cost_grows_has_a_note():
    calls = []

    def slower_each_time():
        calls.append(1)
        time.sleep(0.0003 * len(calls))

    found = opcost.time(slower_each_time, max_time_s=0.4, precision=0.001)
    assert any(note.startswith("runs disagree: ") for note in found.notes)


def test_a_random_cost_has_a_note():
    generator = random.Random(0)
    found = opcost.time(lambda: time.sleep(generator.choice([0.001, 0.003])), max_time_s=0.4)
    assert any(note.startswith("runs disagree: ") for note in found.notes)


def test_a_call_longer_than_the_budget_counts_once_without_an_interval():
    found = opcost.time(time.sleep, 0.05, max_time_s=0.02)
    assert found.time.value >= 0.05
    assert (found.time.low, found.calls, len(found.runs_s)) == (None, 1, 1)
    assert any(note.startswith("interval unknown: longer than max_time_s") for note in found.notes)
    assert opcost.compare(time.sleep, time.sleep, 0.05, max_time_s=0.02).verdict == "unknown"


@pytest.mark.parametrize("device", ["xyz", "CPU", "mps", ""])
def test_a_device_that_there_cannot_be_is_refused(device):
    with pytest.raises(OpcostError, match="allowed: cpu, cuda or cuda:N"):
        opcost.time(time.sleep, 0.01, device=device)


def test_a_grid_whose_names_are_columns_of_the_table_is_refused():
    with pytest.raises(OpcostError, match="the table has columns notes: name the grid otherwise"):
        opcost.time_over({"notes": [1]}, lambda notes: (time.sleep, notes))


def test_few_calls_have_a_wide_interval():
    found = opcost.time(time.sleep, 0.05, max_time_s=0.15)
    assert 2 <= found.calls < 6
    assert found.time.low <= 0.06
    assert found.time.high >= 0.05


def test_autograd_and_compiled_and_registered_functions_are_functions():
    @torch.library.custom_op("opcost_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def step(x):
        (torch.relu(x).sum()).backward()

    compiled = torch.compile(lambda x: x + 1, backend="eager")
    for function in (twice, step, compiled, torch.nn.Linear(4, 4)):
        assert opcost.time(function, torch.ones(4, requires_grad=True), **QUICK).calls > 1


def test_settings_of_the_process_stay_as_they_are():
    before = torch.get_num_threads(), torch.is_grad_enabled()
    opcost.time(torch.relu, torch.ones(4), **QUICK)
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == before
    assert torch.tensor(1e-310, dtype=torch.float64) * 1 > 0  # subnormal


def test_a_grid_of_sizes_gives_a_table():
    sizes = {"n": [4, 8], "dtype": [torch.float32, torch.float64]}
    table = opcost.time_over(
        sizes, lambda n, dtype: (torch.relu, torch.ones(n, n, dtype=dtype)), **QUICK
    )
    assert list(table["n"]) == [4, 4, 8, 8]
    assert {"dtype", "time_s", "time_ci_low_s", "time_ci_high_s", "energy_j", "notes"} <= set(table)
    assert list(table["threads"]) == [1] * 4
    assert (table["time_s"] > 0).all()


def lazy():
    yield 1


async def later():
    return 1


def fail():
    raise KeyError("weights")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: opcost.time(3), "^3, a int, cannot be called: give a function and then its arg"),
        (lambda: opcost.time(fail), "^fail raised KeyError: .*weights.* Give a function and"),
        (
            lambda: opcost.time(torch.mm, torch.ones(2, 3), torch.ones(2, 3)),
            r"^mm raised RuntimeError: .*2x3 and 2x3",
        ),
        (lambda: opcost.time(loop, 1, cache="hot"), "cache is 'hot'; allowed is 'cold' or 'warm'"),
        (lambda: opcost.time(loop, 1, max_time_s=0), "max_time_s is 0; allowed is a finite number"),
        (lambda: opcost.compare(loop, loop, 1, precision=2), "precision is 2; allowed is"),
        (
            lambda: opcost.time(lambda *_: None, torch.ones(2), torch.ones(2, device="meta")),
            "tensors are on cpu and meta: name the one to time",
        ),
        (
            lambda: opcost.time(torch.relu, torch.ones(2, device="meta")),
            "tensors are on meta; opcost times cuda and cpu: move them",
        ),
        (lambda: opcost.time(lazy), "^lazy returned a generator, .* consume it inside the fun"),
        (lambda: opcost.time(later), "^later returned a coroutine, which has done no work yet"),
        (
            lambda: opcost.compare(loop, loop, 1, foo=3),
            "^'foo' is no option of opcost.time. Allowed: cache, device, energy, max_time_s, prec",
        ),
        (lambda: opcost.time_over({"n": 3}, loop), r"the grid is {'n': 3}: give lists by name"),
        (lambda: opcost.time_over({"n": "ab"}, loop), r"the grid is {'n': 'ab'}: give lists by"),
        (lambda: opcost.time_over([1, 2], loop), r"the grid is \[1, 2\]: give lists by name"),
        (
            lambda: opcost.time_over({"n": [1]}, lambda n: loop),
            r"for {'n': 1}, .* was returned: return a function and its arguments",
        ),
    ],
)
def test_what_cannot_be_timed_is_explained(call, message):
    with pytest.raises(OpcostError, match=message):
        call()


ON_A_GPU = """
import opcost, torch
x = torch.randn(1024, 1024, device="cuda")
options = {"max_time_s": 0.1, "energy": False}
product = opcost.time(torch.mm, x, x, max_time_s=0.3)
assert (product.device, product.notes) == ("cuda:0", ()), product
# The simulated GPU computes 50 TFLOP/s, and starts in 2 us.
assert abs(product.time.value / (2e-6 + 2 * 1024**3 / 50e12) - 1) < 0.01, product
assert product.host_time.value > 0
assert product.energy.low <= product.energy.value or product.energy_reason
waits = opcost.time(lambda x: torch.relu(x).sum().item(), x, **options)
assert "it waits for the device: its time includes the host" in waits.notes, waits
for function, args, message in (
    (lambda x: None, [x], "launches nothing on cuda:0"),
    (lambda: None, [], "no tensors as arguments or results show a device"),
    (lambda *_: None, [x, x.cpu()], "tensors are on cpu and cuda:0"),
):
    try:
        opcost.time(function, *args, **options)
    except opcost.errors.OpcostError as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)
"""


@pytest.mark.slow
@pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))
def test_on_a_gpu_the_time_is_that_of_the_device(tmp_path):
    simulated = gpu.SimulatedGpu(tmp_path / "gpu")
    command = [sys.executable, "-W", "ignore", "-c", ON_A_GPU]
    done = subprocess.run(command, env=simulated.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
