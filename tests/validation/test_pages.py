"""Measures of pages: faults of a bad page are found, and a question's way is followed."""

import pytest

from validation.page_measuring import Measured, first_paint_ms, measure_page
from validation.page_questions import Question, answer
from validation.pages import Opened, Side, table_of_pages

BAD = """<!DOCTYPE html><html lang="en"><title>Bad</title><body style="background: #fff">
<h1>Bad</h1><img src="http://127.0.0.1:9/a.png"><button id="theme">x</button>
<div class="chart" style="height: 20px; width: 700px"><svg class="main-svg" height="90"></svg></div>
<div style="height: 2000px"></div><button id="more" onclick="after.hidden = false">more</button>
<p id="after" hidden>An answer: 42 ms</p></body></html>"""


@pytest.mark.slow
def test_the_faults_of_a_page_are_found_and_a_way_is_followed(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(BAD)
    way = ("click button :: more", "see p :: \\d+ ms")
    found = measure_page(browser, path)
    paint = first_paint_ms(browser, path)
    taken = answer(browser, Question("How long?", "bad", way), tmp_path)
    assert found.bytes == len(BAD) and 0 < paint < 10_000
    assert ["image-alt", "critical", "img"] in found.axe_faults
    assert found.reach_px > 700 < found.paper_reach_px and found.small_targets == 2
    assert (found.charts, found.charts_wrong_on_paper, found.dark) == (1, 1, False)
    assert found.requests and set(found.requests) == {"http://127.0.0.1:9/a.png"}
    assert any("ERR_" in line for line in found.console)
    assert (taken.clicks, taken.typed, taken.screens) == (1, 0, 3)  # the answer is below the button
    assert taken.said == "An answer: 42 ms" and taken.seconds > 0


def test_a_table_shows_both_sides_and_what_one_of_them_lacks():
    page = Opened(
        Measured(1234, [["image-alt", "critical", "img"]], 320, 0, 2, 1, 703, True, [], []), [9]
    )
    titles = {"home": "`home`", "eager": "eager steps"}
    before, after = Side("a", {}, {}), Side("b", {"home": page}, {})
    *_, row = table_of_pages(titles, [before, after])
    assert row.startswith("| `home` | – → 1,234 | – → 9 | – → 1 |") and row.endswith("| – → 0, 0 |")
