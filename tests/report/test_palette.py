"""Colours of the pages: everyone can distinguish them, and labels on them are legible."""

from itertools import combinations

import numpy as np
import pytest

from configs.backends import TABLE
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.report.palette import SERIES, colours
from profiling.shared.causes import PARTS
from tests.helpers.colours import SIGHTS, ciede2000, contrast, distance

APART = 12  # CIEDE2000
THEMES = ("light", "dark")
TOGETHER = {  # colours that touch in a bar or share a chart
    "families": FAMILIES,
    "parts of a step": [part.name for part in PARTS],
    "series": SERIES,
    "attention backends": [backend.colour for backend in TABLE],
    "host and GPU time": ["compute", "host"],
    "calls": ["call", "synchronization"],
    "step times": ["accent", "muted", "good"],
    "changes": ["good", "bad", "muted"],
}
themes = pytest.mark.parametrize("theme", THEMES)


@themes
@pytest.mark.parametrize("chart", TOGETHER)
@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_of_a_chart_are_told_apart(theme, chart, sight):
    known = colours(theme)
    near = {
        (one, other): round(found, 1)
        for one, other in combinations(TOGETHER[chart], 2)
        if (found := distance(known[one], known[other], sight)) < APART
    }
    assert near == {}


@themes
def test_shapes_stand_out_from_what_is_behind_them(theme):
    known = colours(theme)
    shapes = {*FAMILIES, *(part.name for part in PARTS), "host", "call", "step"}
    low = {name: contrast(known[name], known["card"]) for name in shapes}
    assert min(low.values()) >= 3, low


@themes
@pytest.mark.parametrize("back", ["card", "page"])
def test_text_is_read(theme, back):
    known = colours(theme)
    for ink in ("text", "muted", "accent", "good", "bad", "warning"):
        assert contrast(known[ink], known[back]) >= 4.5, ink


@themes
def test_black_or_white_is_read_on_every_part(theme):
    """The choice between the two is in templates/colours.js."""
    for part in PARTS:
        colour = colours(theme)[part.name]
        assert max(contrast(colour, ink) for ink in ("#000000", "#ffffff")) >= 4.5


def test_each_reason_for_idle_time_has_a_hatch_of_its_own():
    hatches = [part.colours.hatch for part in PARTS]
    assert len(set(filter(None, hatches))) == len(PARTS) - hatches.count("")
    assert all(part.colours.hatch for part in PARTS if part.cause)


@pytest.mark.parametrize(
    "one, other, told",
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1, 2), (50, 0, 0), 2.3669),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_that_of_the_paper(one, other, told):
    assert ciede2000(np.array(one), np.array(other)) == pytest.approx(told, abs=1e-4)
