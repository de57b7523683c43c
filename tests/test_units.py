"""An amount of work in the reader's units: each number as a line of arithmetic by hand."""

import json
from dataclasses import replace

import opcost
import pytest
from click.testing import CliRunner
from opcost.commands import INCOMPLETE, main
from opcost.costs.explanation import explain
from opcost.costs.units import Factors, parse_factors, work_cost, work_lines
from opcost.errors import OpcostError

from tests.checkout import STUDY
from tests.comparisons import database

CNN = STUDY / "models" / "tiny_cnn.yaml"
UNKNOWN = dict.fromkeys(
    f"{source}_{quantity}"
    for source in ("estimate", "end_to_end")
    for quantity in ("time_s", "energy_j")
)
BATCH = UNKNOWN | {
    "target": "h100",
    "batch_size": 32,
    "estimate_time_s": 0.010,
    "estimate_time_ci_low_s": 0.0096,
    "estimate_time_ci_high_s": 0.0104,
    "estimate_energy_j": 5.0,
    "estimate_energy_ci_low_j": 4.75,
    "estimate_energy_ci_high_j": 5.25,
    "energy_reason": None,
    "predicted_share": 0.0,
    "end_to_end_measurements": None,
}
"""A batch of 32 images: 10 ms ± 4 %, 5 J ± 5 %."""

MEASURED = {
    "end_to_end_measurements": 1,
    "end_to_end_time_s": 0.012,
    "end_to_end_time_ci_low_s": 0.011,
    "end_to_end_time_ci_high_s": 0.013,
}
WITHOUT_ENERGY = {"estimate_energy_j": None, "energy_reason": "no sensor"}
POWERED = {"power_w": 50.0, "energy_j": 0.05, "energy_ci_low_j": 0.049, "energy_ci_high_j": 0.051}


def cost(number=640, row=BATCH, idle_power_w=None, **factors):
    return work_cost(row, Factors(number, "images", **factors), 32, idle_power_w)


def limits(estimate):
    return pytest.approx((estimate.value, estimate.low, estimate.high))


def test_time_and_energy_are_those_of_as_many_batches():
    found = cost(640)  # 640 / 32 = 20 batches
    assert limits(found.time) == (0.200, 0.192, 0.208)  # 20 x 10 ms
    assert limits(found.energy) == (100.0, 95.0, 105.0)  # 20 x 5 J
    assert (found.price, found.carbon) == (None, None)


def test_part_of_a_batch_costs_its_share():
    assert cost(1000).time.value == pytest.approx(0.3125)  # 31.25 x 10 ms
    assert cost(1).energy.value == pytest.approx(0.15625)  # 5 J / 32


def test_a_price_and_carbon_are_those_of_kilowatt_hours():
    found = cost(640, price_per_kwh=0.36, carbon_g_per_kwh=396)
    assert limits(found.price) == (1e-5, 0.95e-5, 1.05e-5)  # 100 J / 3.6 MJ x 0.36
    assert limits(found.carbon) == (0.011, 0.01045, 0.01155)  # 100 J / 3.6 MJ x 396 g


def test_the_overhead_of_the_data_centre_is_in_price_and_carbon_and_not_in_energy():
    found = cost(640, price_per_kwh=0.36, carbon_g_per_kwh=396, pue=1.5)
    assert found.energy.value == pytest.approx(100.0)
    assert limits(found.price) == (1.5e-5, 1.425e-5, 1.575e-5)  # 1.5 x 1e-5
    assert found.carbon.value == pytest.approx(0.0165)  # 1.5 x 0.011 g


def test_idle_energy_is_shared_out_over_the_work():
    found = cost(640, idle_power_w=80.0, duty=0.25, price_per_kwh=0.36)
    # For each second of work, 0.75 / 0.25 = 3 s at 80 W: 0.2 s x 3 x 80 W = 48 J ± 4 %.
    assert limits(found.energy) == (148.0, 95 + 46.08, 105 + 49.92)
    assert found.price.value == pytest.approx(1.48e-5)  # 148 J / 3.6 MJ x 0.36
    assert found.time.value == pytest.approx(0.200)  # that of the working device


def test_a_device_that_always_works_needs_no_idle_power():
    assert cost(640, duty=1).energy.value == pytest.approx(100.0)


def test_unknown_idle_power_leaves_no_energy_rather_than_a_smaller_one():
    found = cost(640, duty=0.3, carbon_g_per_kwh=400)
    assert (found.energy, found.carbon) == (None, None)
    *_, reason = work_lines([found])
    assert reason.startswith("No energy, price or CO2e on h100: the power of the idle device")


def test_carbon_of_nothing_is_nothing_and_an_estimate_without_limits_has_none():
    assert cost(carbon_g_per_kwh=0).carbon.value == 0
    open_row = BATCH | {"estimate_energy_ci_low_j": None, "estimate_energy_ci_high_j": None}
    found = cost(640, open_row, price_per_kwh=0.36).price
    assert (found.value, found.low, found.high) == (pytest.approx(1e-5), None, None)


def test_a_line_has_all_factors():
    given = {"price_per_kwh": 0.36, "currency": "EUR", "carbon_g_per_kwh": 396, "pue": 1.5}
    found = cost(640, idle_power_w=80.0, duty=0.25, **given)
    assert str(found) == (
        "640 images on h100: 200 ms ± 4.0%, 148 J ± 4.7% at duty 0.25, idle at 80.0 W, "
        "41.1 mWh x PUE 1.5 = 61.7 mWh, 0.0000222 EUR ± 4.7% at 0.36 EUR/kWh, "
        "24.4 mg CO2e ± 4.7% at 396 g/kWh (estimate)"
    )
    lines = " ".join(work_lines([found]))
    assert "Computed as 20.00 x 32 images. Energy, price and CO2e are the device's alone" in lines


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        ({}, "(estimate)"),
        ({"predicted_share": 0.12}, "(12% predicted)"),
        (MEASURED, "(time measured end to end, energy estimate)"),
        (MEASURED | WITHOUT_ENERGY, "(measured end to end)"),
    ],
)
def test_where_a_cost_is_from(changes, source):
    assert str(cost(row=BATCH | changes)).endswith(source)


def test_a_measurement_counts_before_an_estimate():
    assert limits(cost(640, BATCH | MEASURED).time) == (0.240, 0.220, 0.260)  # 20 x 12 ms


def test_a_reason_is_stated_once_for_all_targets_without_energy():
    rows = [BATCH | WITHOUT_ENERGY | {"target": name} for name in ("a", "b")]
    costs = [cost(640, row, price_per_kwh=1.0) for row in rows]
    assert work_lines(costs) == [
        "640 images on a: 200 ms ± 4.0% (estimate)",
        "640 images on b: 200 ms ± 4.0% (estimate)",
        "Computed as 20.00 x 32 images.",
        "No energy, price or CO2e on a, b: no sensor.",
    ]


def test_energy_that_is_too_noisy_has_no_price():
    noisy = BATCH | {"estimate_energy_ci_low_j": 1.0, "estimate_energy_ci_high_j": 9.0}
    line = str(cost(640, noisy, price_per_kwh=0.3))
    assert line == "640 images on h100: 200 ms ± 4.0%, energy too noisy to say (estimate)"


@pytest.mark.parametrize(
    ("text", "price", "currency", "shown"),
    [
        ("0.36/kWh", 0.36, "", "price 0.0000100 ± 5.0% at 0.36/kWh"),
        ("0.36 EUR/kWh", 0.36, "EUR", "0.0000100 EUR ± 5.0% at 0.36 EUR/kWh"),
        ("$.36 / kwh", 0.36, "$", "0.0000100 $ ± 5.0% at 0.36 $/kWh"),
        ("36 ct/kWh", 36, "ct", "0.00100 ct ± 5.0% at 36 ct/kWh"),
    ],
)
def test_a_price_is_in_any_currency(text, price, currency, shown):
    factors = parse_factors("640", "samples", text)
    assert (factors.price_per_kwh, factors.currency) == (price, currency)
    assert shown in str(work_cost(BATCH, factors, 32, None))


def test_work_without_a_word_is_samples():
    assert str(parse_factors("1e6", "samples", None)) == "1000000 samples"
    assert str(parse_factors(" 1000  cat images ", "samples", None)) == "1000 cat images"


@pytest.mark.parametrize(
    ("work", "price", "message"),
    [
        *(
            ("1", price, "is not a price: write 0.30/kWh or '0.30 EUR/kWh'")
            for price in ("0/kWh", "-1/kWh", "nan/kWh", "0.30", "0.30 EUR", "0,30 EUR/kWh", "")
        ),
        ("1", "1e999/kWh", "price_per_kwh is inf; allowed: a finite number above 0"),
        ("images", None, "'images' has no number: write --per '1000 images'"),
        ("0 images", None, "number is 0.0; allowed: a finite number above 0"),
        ("1 million images", None, "'1 million images' does not count things: write a number"),
        ("1 hour", None, "'1 hour' does not count things: write a number, such as '1000 images'"),
        ("nan", None, "number is nan; allowed"),
    ],
)
def test_a_text_that_is_no_work_or_price_is_refused(work, price, message):
    with pytest.raises(OpcostError, match=message):
        parse_factors(work, "samples", price)


@pytest.mark.parametrize(
    "factors",
    [
        *({"price_per_kwh": value} for value in (0, -0.3, float("nan"), "0.30")),
        *({"carbon_g_per_kwh": value} for value in (-1, float("inf"))),
        *({"pue": value} for value in (0.99, float("nan"))),
        *({"duty": value} for value in (0, 1.01, -0.5)),
    ],
)
def test_factors_out_of_range_are_refused(factors):
    [name] = factors
    with pytest.raises(OpcostError, match=f"^{name} is .*; allowed: "):
        Factors(1, **factors)


@pytest.fixture
def path(tiny_tuples, tmp_path):
    """A database with 4 calls of 1 ms and 50 mJ, and call overhead, for tiny_cnn."""
    changes = POWERED | {"energy_reason": None, "idle_power_w": 20.0}
    return database(tmp_path / "d.parquet", tiny_tuples, **changes)


def run(path, *options):
    return CliRunner().invoke(main, ["explain", str(CNN), "-d", str(path), *options])


def test_python_and_the_command_say_the_same(path, tiny_tuples):
    found = opcost.explain(tiny_tuples[1], database=path)
    mine = found.per(10, price_per_kwh=0.3, carbon_g_per_kwh=400, pue=1.2, duty=0.5)
    [batch] = {each.shape[0] for each in tiny_tuples[1].definition.inputs}
    times = 10 / batch
    assert mine.time.value == pytest.approx(times * found.time.value)
    joules = times * (found.energy.value + 20.0 * found.time.value)  # as long idle as at work
    assert mine.energy.value == pytest.approx(joules)
    given = ("--price", "0.3/kWh", "--carbon", "400", "--pue", "1.2", "--duty", "0.5")
    [target] = json.loads(run(path, "--per", "10", *given, "--json").output)["targets"]
    assert target["units"] == mine.to_document()
    assert target["units"]["carbon_g"] == pytest.approx(joules / 3.6e6 * 1.2 * 400)
    assert run(path, "--per", "10", *given).output.startswith("10 samples on local: ")


def test_a_price_without_energy_is_incomplete(tiny_tuples, tmp_path):
    path = database(tmp_path / "d.parquet", tiny_tuples)
    assert run(path, "--per", "10").exit_code == 0
    answer = run(path, "--per", "10", "--price", "0.3/kWh")
    assert answer.exit_code == INCOMPLETE
    assert "No energy, price or CO2e on local: simulated: no meter." in answer.output


def test_a_model_without_a_time_has_no_cost(tiny_tuples, tmp_path):
    path = database(tmp_path / "d.parquet", tiny_tuples, without=["relu"])
    answer = run(path, "--no-predict", "--per", "10 images")
    assert answer.output.startswith("No cost of 10 images: no target has a time.\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--price", "0.3/kWh"], "need --per"),
        (["--per", "1", "--csv"], "neither with --csv nor with --offload"),
        (["--per", "1", "--offload", "1GB"], "neither with --csv nor with --offload"),
        (["--per", "1", "--pue", "0.5"], "0.5 is not in the range x>=1"),
        (["--per", "1", "--duty", "0"], "0.0 is not in the range 0<x<=1"),
        (["--per", "1", "--carbon", "-1"], "-1.0 is not in the range x>=0"),
    ],
)
def test_options_that_do_not_fit_are_refused(path, options, message):
    answer = run(path, *options)
    assert answer.exit_code in (1, 2)
    assert message in answer.output


def test_samples_of_an_unknown_batch_cannot_be_counted(path, tiny_tuples):
    [found] = explain(replace(tiny_tuples[1], definition=None), [path])
    with pytest.raises(OpcostError, match="the batch size of tiny_cnn is unknown"):
        found.work(Factors(10))
