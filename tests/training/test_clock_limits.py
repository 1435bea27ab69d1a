"""Alerts about GPU clocks that are held down, from the sampler's means in rows."""

import pytest

from training.metrics.clock_limits import ClockLimits


def alerts_after(rows: list[dict]) -> list[str]:
    """The alerts after these rows, one each ten seconds, as TITLE: TEXT."""
    alerts = []
    limits = ClockLimits(alerts.append)
    for number, row in enumerate(rows):
        limits.watch({"time/elapsed_s": 10.0 * number, "train/loss": 1.0, **row})
    return [f"{alert.title}: {alert.text}" for alert in alerts]


def gpu(prefix: str = "gpu", mhz: float | None = 1410.0, **percent: float) -> dict:
    shares = {"throttle_power_percent": 0.0, "throttle_thermal_percent": 0.0, **percent}
    return {f"{prefix}/sm_clock_mhz": mhz, **{f"{prefix}/{name}": v for name, v in shares.items()}}


FREE, POWER, HEAT = gpu(), gpu(throttle_power_percent=90.0), gpu(throttle_thermal_percent=80.0)
BY_POWER = (
    "A GPU's clock is held down by its power limit: GPU 0: 1410 MHz, throttled by its power limit "
    "90 % of the time"
)


def test_each_cause_is_reported_once():
    assert alerts_after([POWER] * 100) == [BY_POWER]
    power, heat = alerts_after([POWER] * 20 + [HEAT] * 20)
    assert power == BY_POWER and heat.startswith("A GPU's clock is held down by its temperature: ")


def test_all_gpus_of_a_cause_are_one_alert():
    (alert,) = alerts_after([POWER | gpu("gpu1", 1200.0, throttle_power_percent=99.6)] * 7)
    assert alert == f"{BY_POWER}; GPU 1: 1200 MHz, throttled by its power limit 100 % of the time"
    (alert,) = alerts_after([FREE | gpu("gpu1", throttle_thermal_percent=70.0)] * 7)
    assert ": GPU 1: 1410 MHz" in alert


@pytest.mark.parametrize(
    "rows",
    [
        [POWER] * 6,  # not for a minute
        [POWER, FREE, FREE] * 10,  # less than half of the time
        [dict.fromkeys(POWER)] * 20,  # no sample between the rows
        [{}] * 20,  # no GPU
    ],
)
def test_what_is_no_alert(rows):
    assert alerts_after(rows) == []
