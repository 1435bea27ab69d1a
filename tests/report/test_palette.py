"""Colours of the pages: everyone can distinguish them, and labels on them are legible."""

from itertools import combinations

import numpy as np
import pytest

from configs.backends import BACKENDS, TABLE
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.report.palette import MARKS, SERIES, colours, configuration_colours
from profiling.shared.causes import PARTS
from tests.helpers.colours import SIGHTS, ciede2000, contrast, distance, oklch

APART = 11  # CIEDE2000; under 10 is hard in small bars
APART_ON_CANVAS = 7  # in another row, and idle time is hatched
SAME_HUE = 10  # degrees in OKLab
MUCH_COLOUR, SAME_CHROMA = 0.04, 0.05
THEMES = ("light", "dark")
TOGETHER = {  # colours that touch in a bar, share a row or a chart
    "families": FAMILIES,
    "parts of a step": [part.name for part in PARTS],
    "series and attention backends": {*SERIES, *(backend.colour for backend in TABLE)},
    "phases of a CPU's step": [*SERIES, "muted"],
    "host and GPU time": ["compute", "host"],
    "calls": ["call", "wait"],
    "ranks": ["compute", "copy", "communication", "wait"],
    "step times": ["accent", "muted", "good"],
    "changes": ["good", "bad", "muted"],
}
NAMED = dict.fromkeys((*FAMILIES, *(part.name for part in PARTS), *MARKS))  # all on a timeline
themes = pytest.mark.parametrize("theme", THEMES)


def near_pairs(names, apart: float, theme: str, sight: str) -> dict[tuple[str, str], float]:
    """Distances of the pairs of colours that are nearer to one another than `apart`."""
    known = colours(theme)
    return {
        (one, other): round(found, 1)
        for one, other in combinations(names, 2)
        if (found := distance(known[one], known[other], sight)) < apart
    }


@themes
@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_of_a_chart_are_distinguished(theme, sight):
    near = {chart: near_pairs(names, APART, theme, sight) for chart, names in TOGETHER.items()}
    assert not any(near.values()), near


@themes
@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_of_a_timeline_are_distinguished(theme, sight):
    assert near_pairs(NAMED, APART_ON_CANVAS, theme, sight) == {}


@pytest.mark.parametrize("name", NAMED)
def test_a_dark_theme_changes_the_lightness_alone(name):
    (light, chroma, hue), (dark, chroma_in_dark, hue_in_dark) = (
        oklch(colours(theme)[name]) for theme in THEMES
    )
    assert light <= dark + 0.01 and dark - light < 0.4
    assert abs(chroma - chroma_in_dark) < SAME_CHROMA
    turned = abs((hue - hue_in_dark + 180) % 360 - 180)
    assert turned < SAME_HUE or min(chroma, chroma_in_dark) < MUCH_COLOUR


def test_a_configuration_has_one_colour_on_every_page():
    """The attention page takes the backend's own colour."""
    backends = [backend.name for backend in TABLE]
    own = [backend.colour for backend in TABLE]
    assert configuration_colours(backends) == own
    assert configuration_colours(backends[::-1]) == own[::-1]
    assert configuration_colours(["slow", "flash", "flash", None]) == [
        *(BACKENDS["slow"].colour, BACKENDS["flash"].colour),
        *[name for name in SERIES if name not in ("communication", "gemm")][:2],
    ]
    for alike in (["flash"] * 3, [None] * 3):
        assert configuration_colours(alike) == list(SERIES[:3])


@themes
def test_shapes_stand_out_from_what_is_behind_them(theme):
    known = colours(theme)
    low = {name: contrast(known[name], known["card"]) for name in NAMED}
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
    for name in NAMED:
        colour = colours(theme)[name]
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
