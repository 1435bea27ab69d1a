"""Content of a line of training."""

import pytest

from training.metrics import console
from training.metrics.console import Display, tokens
from training.step.clock import Speed


def test_a_line_of_a_log_says_how_far_and_how_long(monkeypatch, caplog):
    """The part that nanoGPT's line has stands first: scripts read it."""
    monkeypatch.setattr(console.console, "_force_terminal", False)
    seconds = iter([100.0, 110.0])
    monkeypatch.setattr(console.time, "perf_counter", lambda: next(seconds))
    display = Display(30, 5000, rank=0)
    with caplog.at_level("INFO", "train"):
        display.show_training(30, 4.0, None, None)
        display.show_training(40, 3.5, Speed(12.5, 1600.0, None), None)
    assert caplog.messages == [
        "iter 30: loss 4.0000, 30/5000",
        "iter 40: loss 3.5000, time 12.50ms, 1.6k tokens/s, 40/5000, 83 min left",
    ]


def test_what_took_its_time_once_does_not_stay_in_the_time_left(monkeypatch):
    """Ten iterations a second, but for a capture of a minute behind the second row."""
    seconds = iter([0.0, 1.0, *range(61, 66)])
    monkeypatch.setattr(console.time, "perf_counter", lambda: next(seconds))
    display = Display(0, 501, rank=0)
    said = [display.progress_of(iteration) for iteration in range(0, 70, 10)]
    assert said[1:3] == ["10/501, 49 s left", "20/501, 48 min left"]
    assert said[6] == "60/501, 44 s left"


@pytest.mark.parametrize(
    ("per_s", "said"),
    [
        (0.4, "0"),
        (192.3, "192"),
        (999.4, "999"),
        (4210, "4.2k"),
        (190_200, "190k"),
        (2e6, "2,000k"),
    ],
)
def test_a_slow_step_has_a_speed_too(per_s, said):
    assert tokens(per_s) == said
