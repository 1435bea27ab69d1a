"""What a line of training says."""

import pytest

from training.console import tokens


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
