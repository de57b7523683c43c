"""Settings of a measurement that takes a fraction of a second."""

from opcost.study import MeasurementSettings, load_study

QUICK = MeasurementSettings(
    cache_state="warm",
    seed=0,
    warm_up_s=0.0,
    batch_s=0.001,
    min_batches=6,
    time_relative_ci=0.5,
    min_time_s=0.0,
    max_time_s=0.5,
    model_time_s=0.05,
    power_relative_ci=0.02,
    power_min_s=1.0,
    power_max_s=2.0,
    power_lead_in_max_s=4.0,
    idle_s=0.2,
    max_repeats=0,
    repeat_pause_s=0.0,
    timeout_s=60,
)


def default_measurement() -> MeasurementSettings:
    """The default settings."""
    study = load_study({"models": [], "targets": {"local": {"device": "cpu"}}})
    return study.conditions["local"].measurement
