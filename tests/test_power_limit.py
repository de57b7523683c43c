"""The power limit of a GPU, as commands and functions set it, and sweeps over it.

The simulated card has 700 W by default, and its administrator has set 650 W.
"""

import json
import time
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from opcost import power
from opcost.commands import main
from opcost.devices.lock import exclusive
from opcost.devices.machine import hashed_uuid
from opcost.devices.operating_point import AS_IT_IS
from opcost.errors import OpcostError
from opcost.power import cap_profiler
from opcost.power.limits import AtLimit, LimitSweep
from opcost.statistics import NORMAL_97_5, Estimate

from tests.documents import ROOT, blocks
from tests.simulated_nvml.card import UUID

NO_PERMISSION = 4
LOAD_W, IDLE_W, STEP_S = 400, 60, 0.02


@pytest.fixture
def gpu(gpu, card, monkeypatch):
    """In this process as well."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    card.reset(virtual=0)
    return gpu


def run(*arguments):
    return CliRunner().invoke(main, ["power-limit", *map(str, arguments)])


def test_a_limit_stays_set_and_the_one_before_is_returned(gpu):
    assert power.set_power_limit(300) == 650
    assert gpu.now[0] == 300
    assert power.set_power_limit(299.5, "GPU-sim") == 300
    assert power.reset_power_limit() == 299.5
    assert gpu.now[0] == 700


def test_the_command_shows_sets_and_resets(gpu):
    shown = "cuda:0: 650 W (default 700 W, allowed 200 to 700 W)\n"
    assert run().output == shown
    assert json.loads(run("--json").stdout)["cuda:0"]["present_w"] == 650
    assert run("300").output == (
        "cuda:0: the power limit is 300 W; before, it was 650 W.\n"
        "To set that again: opcost power-limit 650 --gpu 0\n"
    )
    assert gpu.now[0] == 300
    assert "before, it was 300 W" in run("--reset").output
    assert gpu.now[0] == 700


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["150"], 1, "power_limit_w is 150; this GPU allows 200 to 700"),
        (["300", "--gpu", "1"], 1, "no GPU '1'; there are GPU-simulated"),
        (["300", "--reset"], 2, "not both"),
        (["300", "--json"], 2, "sets none"),
        (["much"], 2, "'much' is not a valid float"),
    ],
)
def test_what_cannot_be_set_is_refused(arguments, code, message, gpu):
    refused = run(*arguments)
    assert (refused.exit_code, message in refused.stderr) == (code, True), refused.stderr
    assert gpu.now[0] == 650


def test_without_permission_the_remedies_are_named(gpu, card):
    card.set(fail_setting=NO_PERMISSION)
    for attempt in (lambda: power.set_power_limit(300), power.reset_power_limit):
        with pytest.raises(OpcostError, match=r"run as root \(sudo\), or with the capability"):
            attempt()


def test_a_limit_is_not_set_while_a_study_measures(gpu, monkeypatch):
    monkeypatch.setattr(exclusive.__wrapped__, "__defaults__", (0.1, AS_IT_IS))
    with exclusive(hashed_uuid(UUID), "a study"), pytest.raises(OpcostError, match="a study"):
        power.set_power_limit(300)
    assert gpu.now[0] == 650


@pytest.fixture
def load(gpu, card, card_of_sampler, monkeypatch):
    """A step of 20 ms that would draw 400 W; time grows as power falls, to 1/slowing. `took_s` has
    its times at each limit.
    """

    def load():
        begun_s = card.now_s()
        time.sleep(max(0.0, card.run(STEP_S, LOAD_W) - begun_s))
        load.took_s[gpu.now[0]].append(card.now_s() - begun_s)  # a busy machine sleeps longer

    def slowed_by(slowing):
        monkeypatch.setenv("SIMULATED_ALWAYS_W", str(LOAD_W))
        card.set(slowing=slowing, idle_w=IDLE_W)

    load.took_s, load.slowed_by = defaultdict(list), slowed_by
    return load


@pytest.fixture
def sweep(load):
    """Sweeps that step, or another one."""

    def sweep(limits, slowing=1 / 3, step=None, seconds=1.0):
        load.slowed_by(slowing)
        return power.sweep_limits(step or load, limits, seconds=seconds)

    sweep.took_s = load.took_s
    return sweep


def test_a_sweep_measures_a_step_at_each_limit_and_finds_the_best(sweep, gpu):
    slowing = 1 / 3
    found = sweep([200, 500, 300], slowing)
    assert [point.limit_w for point in found.points] == [500, 300, 200]
    for point in found.points:
        drawn_w = min(point.limit_w, LOAD_W)
        steps_s = sweep.took_s[point.limit_w]
        assert min(steps_s) > 0.99 * STEP_S * ((LOAD_W - IDLE_W) / (drawn_w - IDLE_W)) ** slowing
        assert 0.95 * min(steps_s) < point.time.value < 1.05 * max(steps_s)
        assert point.mean_power_w == pytest.approx(drawn_w, rel=0.05)
        assert point.energy.value == pytest.approx(drawn_w * point.time.value, rel=0.05)
        assert point.energy.low < point.energy.value < point.energy.high
    best_w = min(found.points, key=lambda point: point.ed2p.value).limit_w
    assert found.best.limit_w == best_w
    assert f"Least energy x time² among these: {best_w:g} W" in str(found)
    frame = found.to_pandas()
    assert frame.limit_w.tolist() == [500, 300, 200]
    assert frame.ed2p_js2.tolist() == [point.ed2p.value for point in found.points]
    assert gpu.now[0] == 650


def test_by_default_eight_limits_that_the_gpu_allows(sweep):
    found = sweep(None, step=lambda: time.sleep(0.01), seconds=0.1)
    limits = [point.limit_w for point in found.points]
    assert (len(limits), limits[0], limits[-1]) == (8, 700, 200)
    assert limits == sorted(limits, reverse=True)


def test_a_step_that_fails_leaves_the_limit_as_it_was(sweep, gpu):
    def fail():
        assert gpu.now[0] == 300
        raise ArithmeticError("a loss that is no number")

    with pytest.raises(ArithmeticError):
        sweep([300], step=fail)
    assert gpu.now[0] == 650


def test_a_limit_that_another_program_sets_meanwhile_leaves_no_time_and_energy_and_stays(
    sweep, gpu, capfd
):
    def step():
        if gpu.now[0] == 300:
            gpu.set(500)
        time.sleep(0.01)

    changed, kept = sweep([300, 200], step=step).points
    assert (changed.limit_w, changed.time, changed.energy, changed.mean_power_w) == (
        300,
        *[None] * 3,
    )
    assert (
        "was set to 300 W, and was 500 W meanwhile: have no other program set it" in changed.reason
    )
    assert kept.time is not None is not kept.energy
    assert gpu.now[0] == 500
    stays = "opcost: power_limit_w stays 500 W, which another program or the driver has set\n"
    assert capfd.readouterr().err == stays


def test_a_step_of_a_sweep_cannot_set_the_limit_itself(sweep, gpu):
    def step():
        with pytest.raises(OpcostError, match="a sweep of power limits runs in this process"):
            power.set_power_limit(250)
        with pytest.raises(OpcostError, match="a sweep of power limits runs in this process"):
            power.sweep_limits(never, [250])
        time.sleep(0.01)

    [point] = sweep([300], step=step).points
    assert point.time is not None
    assert power.set_power_limit(250) == 650


def never():
    raise AssertionError("measured")


@pytest.mark.parametrize(
    ("limits", "options", "message"),
    [
        ([300, 100], {}, "power_limit_w is 100; this GPU allows 200 to 700"),
        ([], {}, "limits is empty"),
        (["300"], {}, "limits has '300'"),
        (300, {}, r"limits is 300: give a list of watts"),
        (None, {"seconds": 0}, "seconds is 0; allowed is a finite number of at least 0.1"),
        (None, {"seconds": float("inf")}, "seconds is inf; allowed is a finite number"),
        (None, {"gpu": 3}, "no GPU '3'"),
        (None, {"gpu": None}, "gpu is None"),
    ],
)
def test_what_a_sweep_cannot_do_it_refuses_before_it_measures(limits, options, message, gpu):
    with pytest.raises(OpcostError, match=message):
        power.sweep_limits(never, limits, **options)
    assert gpu.now[0] == 650


def test_without_an_energy_no_limit_is_the_best():
    point = AtLimit(300, Estimate(1.0, None, None), None, "the meter was lost", None, 3)
    found = LimitSweep("cuda:0", (point,))
    assert (found.best, point.ed2p) == (None, None)
    assert "no energy: the meter was lost" in str(found)


def at_limit(limit_w, time_s, power_w, sd):
    def known(value):
        half = NORMAL_97_5 * sd * value
        return Estimate(value, value - half, value + half)

    return AtLimit(limit_w, known(time_s), known(time_s * power_w), None, power_w, 100)


def test_limits_that_errors_do_not_tell_from_the_best_are_named_and_none_may_bind():
    costs = [(400, 1.01, 60), (300, 1.0, 60), (200, 1.2, 60)]
    found = str(LimitSweep("gpu", tuple(at_limit(*each, 0.01) for each in costs)))
    assert "among these: 300 W; not distinguishable from it: 400 W.\n" in found
    assert found.endswith("The step draws at most 60 W: none of the limits binds.")
    exact = str(LimitSweep("gpu", tuple(at_limit(w, t, w, 1e-4) for w, t, _ in costs)))
    assert exact.endswith("among these: 300 W.")


def test_what_the_best_limit_saves_against_the_present_one_has_an_interval():
    costs = [(400, 1.0, 400), (300, 1.1, 300)]
    found = LimitSweep("gpu", tuple(at_limit(*each, 0.001) for each in costs), 400)
    saved = found.saved
    assert saved["energy"].value == pytest.approx(1 - 1.1 * 300 / 400)
    assert saved["energy"].low < saved["energy"].value < saved["energy"].high
    assert saved["time"].value == pytest.approx(-0.1)
    assert saved["ed2p"].value == pytest.approx(1 - 1.1**3 * 300 / 400)
    assert "the present limit of 400 W: +10.0% [+9.7%, +10.3%] time and -17.5%" in str(found)
    assert replace(found, present_w=450).saved is None
    at_best = replace(found, present_w=300)
    assert at_best.saved["energy"] == Estimate(0, 0, 0)
    assert "Against" not in str(at_best)


class Loader:
    """Two batches, again and again; the card is busy with each."""

    def __init__(self, load):
        self._load = load

    def __iter__(self):
        for _ in range(2):
            self._load()
            yield torch.ones(2, 4), torch.zeros(2, 1)


@pytest.fixture
def on_processor(monkeypatch):
    """The model is on the processor, while the simulated card is kept busy."""
    monkeypatch.setattr(cap_profiler, "_device", lambda gpu_num: torch.device("cpu"))


@pytest.mark.usefixtures("on_processor")
@pytest.mark.parametrize("train", [True, False])
def test_a_model_is_profiled_with_the_call_of_sustainable_ml(load, gpu, train, tmp_path):
    load.slowed_by(1 / 3)
    model = torch.nn.Linear(4, 1)
    before = model.weight.detach().clone()
    found = power.power_cap_profiler(
        gpu_num=0,
        model=model,
        dataloader=Loader(load),
        train=train,
        loss_fn=torch.nn.MSELoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        out_file=tmp_path / "caps.csv",
        seconds=0.8,
    )
    limits_w = [point.limit_w for point in found.points]
    assert limits_w == [700, 650, 630, 560, 490, 420, 350, 280, 210]
    assert found.present_w == gpu.now[0] == 650
    assert found.saved["energy"].low <= found.saved["energy"].value
    assert (model.weight != before).any() == train
    assert model.training == train
    header, *rows = (tmp_path / "caps.csv").read_text().splitlines()
    assert header.startswith("limit_w,time_s,time_ci_low_s")
    assert len(rows) == len(limits_w)
    power.set_power_cap(gpu_num=0, cap=found)
    assert gpu.now[0] == found.best.limit_w
    power.reset_power_cap(gpu_num=0)
    assert gpu.now[0] == 700


@pytest.mark.usefixtures("on_processor")
def test_the_call_on_the_page_for_users_of_sustainable_ml_sets_a_limit_and_resets_it(
    load, gpu, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(power.power_cap_profiler.__kwdefaults__, "seconds", 0.8)
    load.slowed_by(1 / 3)
    [shown] = [
        block.text
        for block in blocks(ROOT / "docs/how_to/from_other_tools.md")
        if block.language == "python" and "power_cap_profiler" in block.text
    ]
    model, limits_w = torch.nn.Linear(4, 1), []
    names = {
        "model": model,
        "trainloader": Loader(load),
        "criterion": torch.nn.MSELoss(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "train": lambda: limits_w.append(gpu.now[0]),
    }
    exec(shown, names)
    assert limits_w == [names["cap"].best.limit_w]
    assert gpu.now[0] == 700
    assert len((tmp_path / "caps.csv").read_text().splitlines()) == 1 + len(names["cap"].points)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": True}, "train=True needs loss_fn and optimizer"),
        ({"gpu_num": 1}, "no GPU '1'"),
        ({"dataloader": []}, "the data loader has no batch"),
        ({"dataloader": [{"ids": 1}]}, "a batch of the data loader is a dict, not a pair"),
    ],
)
@pytest.mark.usefixtures("on_processor", "card_of_sampler")
def test_what_the_profiler_cannot_use_it_refuses_and_leaves_the_limit(options, message, gpu):
    options = {"dataloader": Loader(never), **options}
    with pytest.raises(OpcostError, match=message):
        power.power_cap_profiler(torch.nn.Linear(4, 1), **options)
    assert gpu.now[0] == 650


def test_without_a_best_limit_no_cap_is_set(gpu):
    point = AtLimit(300, Estimate(1.0, None, None), None, "the meter was lost", None, 3)
    with pytest.raises(OpcostError, match="no limit is the best"):
        power.set_power_cap(0, LimitSweep("cuda:0", (point,)))
    assert gpu.now[0] == 650
