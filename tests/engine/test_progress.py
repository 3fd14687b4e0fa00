"""Counting: totals for good, rates over one and five minutes, and no more than a window's seconds held."""

from millpond.engine.progress import FIVE_MINUTES_S, LoadProgress, Meter
from millpond.testing.clock import Clock


def test_rates_are_over_their_windows() -> None:
    clock = Clock(1000.0)
    meter = Meter(clock=clock)
    meter.add(600)
    clock.now += 120
    meter.add(60, bad=2)
    clock.now += 60
    assert meter.rate() == 1.0
    assert meter.rate(FIVE_MINUTES_S) == round(660 / 180, 1)
    clock.now += 300
    assert meter.rate(FIVE_MINUTES_S) == 0.0
    assert (meter.rows, meter.bad, meter.batches) == (660, 2, 2)


def test_many_batches_in_a_second_are_held_as_one() -> None:
    clock = Clock(1000.0)
    meter = Meter(clock=clock)
    for number in range(10_000):
        clock.now = 1000.0 + number / 10
        meter.add(1)
    assert len(meter._recent) <= FIVE_MINUTES_S + 2
    assert meter.rate() == 10.0


def test_a_load_reports_how_far_it_is_how_fast_and_how_long_it_will_take() -> None:
    load = LoadProgress(300, 1200, "bytes", rows=30, rows_per_s=15.0, seconds_left=6.0)
    assert str(load) == "300 of 1200 bytes, 15 rows/s, 6 s left"
    assert str(LoadProgress(30, None, "rows", 30, 15.0, None)) == "30 rows, 15 rows/s"
