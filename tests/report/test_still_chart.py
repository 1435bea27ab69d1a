"""Charts as SVG for readers without scripts: their proportions, names and size."""

import re
from xml.etree import ElementTree

import pytest

from profiling.report.document import Chart, shown_blocks
from profiling.report.single.document import report_document
from profiling.report.still_chart import MOST, still_chart
from tests.helpers.captures import capture_of

AXES = {"xaxis": {"title": {"text": "ms"}}, "yaxis": {}}


def drawn(data, **layout) -> list[ElementTree.Element]:
    made = still_chart(Chart("c", "a chart", {"data": data, "layout": AXES | layout}))
    return list(ElementTree.fromstring(made))


def bar(lengths, name="") -> dict:
    places = [f"<i>{n}" for n in range(len(lengths))]
    marker = {"color": "var(--gemm)"}
    return {
        **{"type": "bar", "orientation": "h", "name": name, "marker": marker},
        **{"x": lengths, "y": [place.replace("<", "&lt;") for place in places]},
    }


def test_bars_are_as_long_as_their_values_and_stack():
    boxes = [e for e in drawn([bar([1.0, 4.0])]) if e.tag == "rect"]
    widths = [float(box.get("width")) for box in boxes]
    assert widths[1] == pytest.approx(4 * widths[0], abs=0.2)
    assert boxes[0].get("style") == "fill:var(--gemm, var(--other))"
    parts = drawn([bar([1.0], "a"), bar([2.0], "b")], barmode="stack")
    one, two = [e for e in parts if e.tag == "rect"][:2]
    end = float(one.get("x")) + float(one.get("width"))
    assert float(two.get("x")) == pytest.approx(end, abs=0.11)
    assert {"a", "b", "<i>0", "ms"} <= {e.text for e in parts if e.tag == "text"}


def test_lines_go_upwards_and_a_logarithm_is_one():
    trace = {"type": "scatter", "mode": "lines", "x": [1, 10, 100], "y": [1, 2, 3]}
    (line,) = [e for e in drawn([trace], xaxis={"type": "log"}) if e.tag == "polyline"]
    (a, b, c) = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert b[0] - a[0] == pytest.approx(c[0] - b[0], abs=0.2) and a[1] > b[1] > c[1]


def test_what_is_not_drawn_is_left_to_words():
    for data in ([bar([])], [bar([-1.0])], [{"type": "box", "x": [1.0], "meta": {}}]):
        assert still_chart(Chart("c", "a chart", {"data": data, "layout": AXES})) is None
    many = {"type": "scatter", "x": list(range(999)), "y": list(range(999))}
    assert still_chart(Chart("c", "a chart", {"data": [many], "layout": AXES})) is None


def test_charts_of_a_report_stand_still_in_little_room():
    document = report_document(capture_of("flash_metrics").report)
    blocks = shown_blocks([*document.verdict, *document.sections[0].blocks], "page")
    charts = [block for block in blocks if isinstance(block, Chart)]
    assert MOST <= 5_000 and "breakdown" in {chart.name for chart in charts}
    made = [still_chart(chart) for chart in charts]
    assert all(made) and not re.search("NaN|inf", "".join(made))
