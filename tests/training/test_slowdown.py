"""A run that has become several times slower reports it, once."""

import pytest

from training.metrics.slowdown import Slowdown


@pytest.fixture
def warnings_after(caplog):
    """warnings_after(rows): the warnings after these rows of (median step in ms, steps)."""

    def of(rows):
        watch = Slowdown()
        for step_ms, steps in rows:
            watch.watch(step_ms, steps)
        return [record.getMessage() for record in caplog.records]

    return of


def test_long_and_five_times_slower_is_said_once(warnings_after):
    (line,) = warnings_after([(60, 10), (56, 10), *[(1830, 10)] * 5])
    assert line.startswith(
        "steps take 1,830 ms, 56 ms before: another process may be using this machine"
    )


@pytest.mark.parametrize(
    "rows",
    [
        [(56, 10), *[(270, 10)] * 9],  # not five times
        [(56, 10), (1830, 2), (60, 10), (1830, 2), (60, 10)],  # never for long
        [(1830, 10)] * 9,  # slow from the start: nothing to compare with
    ],
)
def test_what_is_not_said(warnings_after, rows):
    assert warnings_after(rows) == []
