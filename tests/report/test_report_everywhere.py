"""Parts and bottlenecks of a step appear in each output; names from captures do harm in none."""

import io
import json
import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from profiling.analysis.difference.comparison_records import (
    BucketChange,
    Comparability,
    Comparison,
    FamilyChange,
    KernelChanges,
    KernelOnOneSide,
    RangeChange,
    Side,
    StepComparison,
)
from profiling.analysis.records import Gain, Report, TypicalStep
from profiling.analysis.runs.folder import read_run
from profiling.report.comparison.comparison_charts import waterfall
from profiling.report.comparison.document import comparison_document
from profiling.report.comparison.tables import bucket_label
from profiling.report.dashboard.document import dashboard_page
from profiling.report.document import Bullets, Chart, Document, Section, SideBySide, Table
from profiling.report.ranks.rank_charts import steps_by_rank
from profiling.report.renderers import terminal
from profiling.report.renderers.markdown import markdown
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document, step_parts
from profiling.report.single.step_charts import breakdown
from profiling.report.single.step_slices import of_parts
from profiling.report.single.tables import gaps
from profiling.report.single.timeline_data import timeline_data
from profiling.shared import causes
from tests.helpers.captures import capture_of
from tests.helpers.chromium import open_page
from tests.helpers.figures import figures_of
from tests.helpers.folders import write_run
from tests.helpers.reports import report_with_manifest
from tests.paths import PROJECT

MADE_UP = causes.Part(
    "paging",
    "idle: paging",
    causes.Colours("#123456", "#654321", "white"),
    cause=True,
)
# colours, the window's name, a cleared screen, 8-bit controls, text from right to left, a bell
HOSTILE = "a\x1b[31mb\x1b]0;renamed\x07c\x1b[2J\x9b5md\u202etxt\u2066e\x07\x00f\ud800\r\ng\x7fh"
HARMLESS = "abc5mdtxtef gh"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def text_in_terminal(document: Document) -> str:
    out = io.StringIO()
    terminal.show(document, Console(file=out, width=100, highlight=False))
    return out.getvalue()


def without_scripts(html: str) -> str:
    """Keeps what a browser shows, and the figures that it draws."""
    return re.sub(r"<script.*?</script>", "", html, flags=re.S) + json.dumps(figures_of(html))


def test_what_has_nothing_to_show_is_left_out():
    nothing = [
        Table("t", "No rows", "Note.", [], []),
        Bullets("No lines", []),
        Chart("c", "", None),
    ]
    sections = [Section("s", "Empty", nothing), Section("b", "Beside", [SideBySide(nothing)])]
    document = Document("A title", [], [], sections)
    for text in (text_in_terminal(document), markdown(document), without_scripts(page(document))):
        assert "A title" in text
        assert not re.search("No rows|No lines|Note|Empty|Beside", text)


def report_with(by_cause: dict[str, float]) -> Report:
    """1, 2, 3 ms of what is no idle time, and these."""
    parts_ms = {"compute": 1.0, "communication": 2.0, "copy": 3.0} | by_cause
    step = TypicalStep(20, sum(parts_ms.values()), parts_ms, {}, 0.0, None)
    return replace(report_with_manifest(), typical=step)


def test_a_step_that_took_no_time_has_no_bar():
    report = report_with({})
    still = replace(report, typical=TypicalStep(1, 0.0, {"compute": 0.0}, {}, 0.0, None))
    assert step_parts(still) == [] and breakdown(of_parts(step_parts(still))) is None


def every_cause() -> dict[str, float]:
    names = [part.name for part in causes.PART.values() if part.cause]
    return {name: 4.0 + number for number, name in enumerate(names)}


def comparison_with(by_cause: dict[str, float], name: str = "kernel") -> Comparison:
    """Compares a step without any of these causes to one with all."""
    step = StepComparison(10.0, 20.0, 2.0, (1.9, 2.1), 0.0, 0.0, [10.0], [20.0])
    idle = [BucketChange(f"idle_{cause}", 0.0, ms, ms) for cause, ms in by_cause.items()]
    return Comparison(
        schema_version=1,
        baseline=Side(f"{name}.sqlite", "NVIDIA H200", "flash", "cpu", name),
        candidate=Side("other.sqlite", "NVIDIA H200", "slow", "launch", "other"),
        step_ms=step,
        free_step_ms=None,
        verdict="slower",
        buckets=[BucketChange("compute", 1.0, 2.0, 1.0), *idle],
        families=[FamilyChange(name, 1.0, 2.0, 1.0)],
        ranges=[RangeChange(name, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0)],
        kernels=KernelChanges([KernelOnOneSide(name, "other", 1.0, 2.0)], []),
        differs=[],
        differences={},
        comparability=Comparability(False, [f"{name} is another"], True, [f"a note on {name}"]),
        sentence=f"other is 2.00x slower than {name}",
    )


def figures(line: str) -> list[float]:
    return [float(word.replace(",", "")) for word in re.findall(r"[\d,]+\.\d+", line)]


def check_step(by_cause: dict[str, float]) -> None:
    """Each part with its own words in terminal, Markdown and page; what is shown adds up."""
    report = report_with(by_cause)
    document = report_document(report)
    names = ["compute", "communication", "copy", *by_cause]
    parts = dict(zip(names, [1.0, 2.0, 3.0, *by_cause.values()], strict=True))
    whole_ms = sum(parts.values())
    told, written, html = text_in_terminal(document), markdown(document), page(document)
    for said in (told, written):
        lines = said.splitlines()
        found = []
        for name in parts:
            row = re.compile(rf"\S? ?\|? ?{re.escape(causes.part_named(name).title)}  ?[ |].* %")
            (line,) = filter(row.match, lines)
            found.append(figures(line)[0])
        assert found == pytest.approx(list(parts.values()))
        assert sum(found) == pytest.approx(whole_ms, abs=0.01)
        assert f"{whole_ms:.2f}" in next(
            line for line in lines if "step**" in line or "  the step" in line
        )
    bar = next(line for line in told.splitlines() if "█" in line)
    assert len(bar.strip()) == terminal.BAR_WIDTH
    bars, shown = breakdown(of_parts(step_parts(report)))["data"], without_scripts(html)
    assert [bar["x"][0] for bar in bars] == list(parts.values())
    for name, bar in zip(parts, bars, strict=True):
        assert causes.part_named(name).title in bar["hovertemplate"]
        assert bar["marker"]["color"] in shown
        assert bar["name"] == causes.part_named(name).title


def check_comparison(by_cause: dict[str, float]) -> None:
    comparison = comparison_with(by_cause)
    document = comparison_document(comparison)
    for said in (text_in_terminal(document), markdown(document), page(document)):
        for cause in by_cause:
            assert causes.part_named(cause).title in said, cause
    (bars,) = waterfall(comparison)["data"]
    assert bars["x"][2:-1] == [causes.part_named(cause).title for cause in by_cause]
    assert sum(bars["y"][:-1]) == pytest.approx(bars["y"][-1])


def test_every_cause_is_told_everywhere_and_the_parts_add_up():
    assert len(every_cause()) >= 5
    check_step(every_cause())
    check_comparison(every_cause())


@pytest.mark.slow
def test_a_new_row_of_the_table_is_all_that_a_new_cause_takes(monkeypatch):
    monkeypatch.setitem(causes.PART, MADE_UP.name, MADE_UP)
    assert "paging" in every_cause()
    check_step(every_cause())
    check_comparison(every_cause())
    html = page(report_document(report_with(every_cause())))
    assert "--paging: #123456;" in html and "--paging: #654321;" in html


def test_a_cause_that_no_table_knows_is_told_all_the_same():
    check_step(every_cause() | {"mystery": 20.0})
    check_comparison(every_cause() | {"mystery": 20.0})


@pytest.mark.slow
def test_what_has_no_colour_is_drawn_in_a_neutral_one(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page(report_document(report_with({"launch": 4.0, "mystery": 50.0}))), "utf-8")
    open_page(browser, path)
    drawn = browser.execute_script(
        "const chart = document.querySelector('[data-chart=breakdown]');"
        "const name = style => getComputedStyle(document.documentElement)"
        "  .getPropertyValue(style).trim();"
        "return [Object.fromEntries(chart.data.map(bar => [bar.name, bar.marker.color])),"
        "  name('--other'), name('--launch')]"
    )
    colours, other, launch = drawn
    assert colours["idle: mystery"] == other and colours["idle: kernel launches"] == launch != other


def test_a_cause_is_called_as_its_verdict_is():
    for part in causes.PARTS:
        if part.cause and part.name != "staging":  # one of two parts that lead to `copies`
            assert part.title == f"idle: {causes.VERDICT[part.verdict].title}"


SYNONYMS = re.compile(r"launch-bound|\bidle: (launch|cpu|sync|queue)\b|\bidle_[a-z]")


def test_a_cause_has_one_word_in_every_document():
    """Walks the labels of bar, table, timeline and its legend, comparison and ranks."""
    captured = capture_of("flash_eager")
    report, events = captured.report, captured.step_events
    timeline = timeline_data(events, {})
    slowed = SimpleNamespace(slowed_ms=0.0)
    ranks = [SimpleNamespace(rank=0, parts_ms=every_cause(), communication=slowed)]
    labels = {*(bar["name"] for bar in breakdown(of_parts(step_parts(report)))["data"])}
    labels |= {bar["name"] for bar in steps_by_rank(ranks)["data"]}
    labels |= {str(gaps(report).columns[1].value_of(gap)) for gap in report.idle.gaps}
    labels |= {name["label"] for name in timeline["names"] if name["label"].startswith("idle")}
    for cause in causes.CAUSES:
        title = causes.part_named(cause).title
        assert timeline["causes"][cause] == bucket_label(f"idle_{cause}") == title
        assert timeline["hatches"][cause] == causes.part_named(cause).colours.hatch
        labels -= {title}
    assert labels <= {"compute", "communication", "copies and memsets", "idle"}
    for document in (report_document(report, events), comparison_document(comparison_with({}))):
        for said in (
            text_in_terminal(document),
            markdown(document),
            without_scripts(page(document)),
        ):
            assert not SYNONYMS.findall(said)


def test_synchronization_is_spelt_as_cuda_spells_it():
    report, comparison = report_with(every_cause()), comparison_with(every_cause())
    told = [markdown(report_document(report)), markdown(comparison_document(comparison))]
    told += [path.read_text("utf-8") for path in (PROJECT / "docs").glob("*.md")]
    for text in told:
        assert not re.findall(r"\bsynchronis\w*", text, re.I)


def test_idle_time_without_causes_is_told_as_such():
    report = report_with({"idle": 4.0})
    document = report_document(report)
    assert re.search(r"░ idle +4\.00 ms +40\.0 %", text_in_terminal(document))
    assert "| idle | 4.00 | 40.0 % |" in markdown(document)
    assert "var(--idle)" in without_scripts(page(document))


@pytest.mark.slow
@pytest.mark.parametrize("name", causes.VERDICT)
def test_every_verdict_is_told_everywhere(name):
    report, found = report_with_manifest(), causes.VERDICT[name]
    gains = [Gain(verdict=each, recoverable_ms_per_step=1.0) for each in causes.VERDICT]
    report = replace(report, bottleneck=replace(report.bottleneck, verdict=name, ranked=gains))
    document = report_document(report)
    html = page(document)
    for said in (text_in_terminal(document), markdown(document), html):
        assert (found.title in said or name == "unknown") and found.why in said
    assert all(each.title in html for each in causes.VERDICTS)
    side = Side("a.sqlite", None, None, name, "a")
    document = comparison_document(msgspec.structs.replace(comparison_with({}), baseline=side))
    pair = "kernel launches" if name == "launch" else f"{found.title} -> kernel launches"
    on_page = unescape(page(document)).replace("→", "->")
    for said in (text_in_terminal(document), markdown(document).replace("\\", ""), on_page):
        assert pair in said


def hostile_report() -> Report:
    report = report_with_manifest()
    bottleneck = replace(
        report.bottleneck, evidence=[HOSTILE], next=[HOSTILE], cannot_tell=[HOSTILE]
    )
    return replace(
        report,
        capture=replace(report.capture, file=HOSTILE, tool_version=HOSTILE),
        window=replace(report.window, step_name=HOSTILE),
        ranges=[replace(report.ranges[0], name=HOSTILE), *report.ranges[1:]],
        kernels=[replace(report.kernels[0], name=HOSTILE), *report.kernels[1:]],
        api=[replace(report.api[0], name=HOSTILE), *report.api[1:]],
        memops=[replace(report.memops[0], operation=HOSTILE), *report.memops[1:]],
        idle=replace(
            report.idle,
            gaps=[replace(gap, phase=HOSTILE, after=HOSTILE) for gap in report.idle.gaps],
        ),
        run=replace(report.run, config={HOSTILE: HOSTILE}),
        bottleneck=bottleneck,
    )


@pytest.mark.parametrize(
    "document",
    [report_document(hostile_report()), comparison_document(comparison_with({}, HOSTILE))],
    ids=["report", "comparison"],
)
def test_control_characters_of_names_reach_no_place(document):
    for said in (text_in_terminal(document), markdown(document), without_scripts(page(document))):
        assert not FORBIDDEN.search(said)
        assert HARMLESS in " ".join(said.split())
        assert "renamed" not in said
        said.encode()  # which a lone surrogate refuses
    script = re.findall(r'<script type="application/json".*?</script>', page(document), re.S)
    assert not re.search(r"\\u00[019]|\\u202[^2]|\\u206|\\ud8", "".join(script))


def test_control_characters_of_a_run_s_folder_reach_no_place(tmp_path):
    folders = [write_run(tmp_path / f"a\x1b[31mb\x07c {i}", seed=i) for i in (1, 2)]
    said = dashboard_page([read_run(folder) for folder in folders])
    assert not FORBIDDEN.search(without_scripts(said)) and "hide a run" in said


def test_a_name_does_not_leave_its_cell_in_markdown():
    name = "x`|\n| <b>y</b> | [z](http://a) |"
    document = comparison_document(comparison_with({}, name))
    said = markdown(document)
    for block in re.findall(r"(?:^\|.*\n)+", said, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert "<b>" not in re.sub(r"(?<!\\)`[^`]*`", "", said).replace("\\<", "")
