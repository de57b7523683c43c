"""The windows of a recording: those of the same name together, and what there is to say of them."""

import math
import random

import numpy as np
import pytest
from opcost.energy.nvml import NvmlMeter
from opcost.energy.sensor import Sensor
from opcost.power.recorded_windows import rows_by_name, window_rows
from opcost.power.recording import SAMPLE
from opcost.power.window_table import window_lines
from opcost.rows.quantities import ENERGY
from opcost.statistics import Estimate, weighted_sum

from tests.simulated_nvml.card import UUID
from tests.simulated_nvml.recorded import Recorded

GPU = "cuda:0"
SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, counter_refresh_s=0.1)
STEP_S = 0.3
SHORT = "0.01 s are too short for the sensor"


def window(name, start_s, energy=None, reason=None, **more):
    used = {**ENERGY.columns(energy), "reason": reason, "changes": 4, "flags": [], **more}
    return {
        "time_s": start_s + 1,
        "window": name,
        "start_s": start_s,
        "end_s": start_s + 1,
        "devices": {GPU: used},
    }


def rows(*events, **segment):
    return window_rows([{"events": list(events), **segment}])


def by_name(*events, **segment):
    return rows_by_name([{"events": list(events), **segment}])


def text_of(found):
    return " ".join(" ".join(window_lines(found)).split())


TEN = Estimate(10.0, 9.0, 11.0)


def test_the_total_of_a_name_has_the_limits_of_all_its_windows():
    [total] = by_name(window("step", 0, TEN), window("step", 2, TEN))
    assert (total["windows"], total["time_s"]) == (2, 2)
    used = total["devices"][GPU]
    assert ENERGY.read(used) == Estimate(20.0, 18.0, 22.0)
    assert (used["changes"], used["mean_power_w"]) == (8, 10.0)
    assert "windows" in text_of([total])


@pytest.mark.parametrize("seed", range(4))
def test_the_sum_of_windows_that_begin_and_end_with_the_load_holds_the_truth(card, seed):
    """Each of them misses the same part at its edges: as independent, the errors would cancel."""
    card.reset()
    generator = random.Random(seed)
    starts_s = [6 + 0.6 * step + generator.uniform(0, 0.1) for step in range(30)]
    meter, samples = NvmlMeter(UUID), []
    for start_s in [*starts_s, starts_s[-1] + 3]:
        while (left_s := start_s - card.now_s()) > 0:
            card.sleep(min(0.025, left_s))
            unknown = [math.nan] * (len(SAMPLE.names) - 4)
            samples.append((card.now_s(), 0, math.nan, meter.counter_j(), *unknown))
        card.run(STEP_S, 300)
    recorded = Recorded(card, SENSOR, np.array(samples, SAMPLE))
    found = [recorded.window(start_s, start_s + STEP_S) for start_s in starts_s]
    energies, true_j = [used.energy for used, _ in found], sum(true_j for _, true_j in found)
    total = by_name(*(window("step", 2.0 * place, each) for place, each in enumerate(energies)))[0][
        "devices"
    ][GPU]
    assert total["energy_ci_low_j"] <= true_j <= total["energy_ci_high_j"]
    cancelling = weighted_sum((1.0, each) for each in energies)
    assert not cancelling.low <= true_j <= cancelling.high


def test_a_name_with_a_window_without_energy_has_no_total_but_that_of_the_others():
    [total] = by_name(
        window("step", 0, TEN), window("step", 2, None, SHORT), window("step", 4, TEN)
    )
    used = total["devices"][GPU]
    assert used["energy_j"] is None
    assert used["reason"] == f"1 of 3 windows have no energy; the first of them: {SHORT}"
    assert used["windows_with_energy"]["windows"] == 2
    assert used["windows_with_energy"]["energy_j"] == 20
    assert (
        f"{GPU}: the 2 of 3 windows 'step' that have an energy used 20 J ± 10% in 2.000 s."
        in text_of([total])
    )


def test_windows_of_one_name_that_overlap_have_no_total():
    [total] = by_name(window("step", 0, TEN), window("step", 0.5, TEN))
    assert total["devices"][GPU]["energy_j"] is None
    assert f"{GPU}: no energy in 'step': the windows overlap" in text_of([total])


def test_names_that_share_a_reason_have_their_upper_limits():
    found = [
        *(window("step", n, None, f"0.0{n} s are too short", at_most_j=2.0) for n in (1, 2, 3)),
        *(window("backward", n, None, f"0.0{n} s are too short", at_most_j=3.0) for n in (4, 5)),
        window("update", 6, None, "0.06 s are too short"),
    ]
    assert (
        f"{GPU}: no energy in any window: 6 of 6 windows have no energy; the first of them "
        "('step'): 0.01 s are too short; at most in all: 6.00 J in 'step', 6.00 J in 'backward'."
    ) in text_of(by_name(*found))


def test_a_device_without_sensor_has_the_reason_in_every_window():
    found = rows(window("a", 0, TEN), window("b", 2, TEN), missing={"cpu": "no energy sensor"})
    assert found[0]["devices"]["cpu"]["reason"] == "no energy sensor"
    assert "cpu: no energy in any window: no energy sensor." in text_of(found)


def test_flags_and_labels_are_in_the_table():
    flagged = rows(window("a", 0, TEN, flags=["throttled"]), labels={"batch": "8"})
    lines = window_lines(flagged + rows(window("b", 0, TEN)))
    assert lines[0].split() == ["batch", "window", "time", GPU]
    assert [line.split()[0] for line in lines[1:3]] == ["8", "-"]
    assert any(line.startswith(f"{GPU}: flagged throttled (") for line in lines)
