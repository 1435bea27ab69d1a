"""Report of several ranks in words and charts: units, sums, many ranks on one page."""

from dataclasses import replace

import pytest

from benchmarks.fleet.simulation import Fault, Fleet
from profiling.analysis.ranks.cause_said import next_steps
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.ranks.summary import RanksAnalysis
from profiling.report.document import Chart, Facts, Table
from profiling.report.ranks.document import MOST_HEIGHT, first_screen, ranks_document
from profiling.report.ranks.rank_charts import SLOWED
from profiling.report.ranks.timeline import MOST, shown_note, shown_ranks, timeline_of
from profiling.report.renderers.markdown import markdown
from profiling.shared.causes import PARTS
from tests.helpers.fleet import analyse_files, write_fleet

LATE = 2


@pytest.fixture(scope="module")
def analysis(tmp_path_factory) -> RanksAnalysis:
    late = Fleet(ranks=4, steps=4, fault=Fault("slow_loader", ranks=(LATE,)))
    return analyse_files(write_fleet(late, tmp_path_factory.mktemp("ranks")))


def repeated(report: RanksReport, times: int) -> RanksReport:
    """Repeats the report's ranks `times` times, and has one late one among them."""
    rows = [row for row in report.ranks if row.rank != LATE] * times
    rows.insert(LATE, report.ranks[LATE])
    ranks = [replace(row, rank=rank) for rank, row in enumerate(rows)]
    wait_ms = [[0.0] * len(ranks) for _ in report.steps.iterations]
    return replace(report, ranks=ranks, steps=replace(report.steps, wait_ms=wait_ms))


def test_the_parts_of_a_row_add_up_to_its_step(analysis):
    table = block(analysis.report, Table, "ranks")
    step = next(column for column in table.columns if column.heading == "step")
    for row in analysis.report.ranks:
        busy = row.compute_ms + row.copy_ms + row.communication.exposed_ms
        assert step.value_of(row) == pytest.approx(busy + row.idle_ms)


def test_the_first_screen_says_what_its_figures_are_in(analysis):
    document = first_screen(ranks_document(analysis.report))
    titles = [block.title for section in document.sections for block in section.blocks]
    assert titles == ["Ranks, ms per step", "Shares of a step, %", "Collectives, ms each"]


def test_of_many_ranks_those_are_drawn_that_wait_least_and_most(analysis):
    few, many = analysis.report, repeated(analysis.report, 100)
    assert shown_ranks(few.ranks) == [0, 1, 2, 3] and not shown_note(few.ranks)
    shown = shown_ranks(many.ranks)
    assert len(shown) == MOST and LATE in shown and shown == sorted(shown)
    heights = {name: block(many, Chart, name).height for name in ("ranks_step", "waits", "costs")}
    assert heights["waits"] == MOST_HEIGHT and max(heights.values()) < 1000
    assert len(block(many, Chart, "ranks_step").figure["data"][0]["y"]) == MOST
    assert len(block(many, Chart, "waits").figure["data"][0]["y"]) == 301
    assert len(block(many, Table, "ranks").rows) == 301
    lead = next(s.lead for s in ranks_document(many).sections if s.name == "ranks")
    assert "Shown are 32 of 301 ranks" in lead


def test_the_page_says_how_sure_the_matching_is(analysis):
    note = block(analysis.report, Table, "collectives").note
    assert note.endswith(
        "Matched by sequence number; 100.0 % end at one time on all ranks, as they should."
    )
    found = replace(analysis.report.matching, by="order", cut_off=12)
    note = block(replace(analysis.report, matching=found), Table, "collectives").note
    assert "neither sizes nor sequence numbers" in note and ", and 12 that were launched" in note


def test_a_loader_that_is_late_has_more_than_one_cure(analysis):
    text = markdown(ranks_document(analysis.report, timeline_of(analysis)))
    assert text.count("**next:**") == 2 and "num\\_workers" in text


def test_the_bars_of_the_ranks_have_the_words_of_the_report_of_one(analysis):
    bars = block(analysis.report, Chart, "ranks_step").figure["data"]
    assert "idle: data loading" in [bar["name"] for bar in bars]
    assert {bar["name"] for bar in bars} <= {SLOWED, *(part.title for part in PARTS)}


def test_page_card_and_table_agree_on_what_a_late_rank_costs(analysis):
    """None is said only where it is known to be none."""
    nobody = replace(analysis.report, straggler=None, verdict="balanced")
    assert costs_of(nobody).endswith(" ms, as equal hosts differ"), "the table has a cost"
    little = [replace(row, costs_ms_per_step=0.025 * row.step_ms) for row in nobody.ranks]
    assert costs_of(replace(nobody, ranks=little)).endswith(" ms, as equal GPUs differ")
    free = [replace(row, costs_ms_per_step=0.0) for row in nobody.ranks]
    assert costs_of(replace(nobody, ranks=free)) == "none"
    assert costs_of(replace(nobody, verdict="unknown")) == "unknown"
    unmatched = [replace(row, costs_ms_per_step=None) for row in nobody.ranks]
    assert costs_of(replace(nobody, ranks=unmatched)) == "unknown"


def test_what_collectives_slow_is_beside_what_a_rank_computes(analysis):
    slowed = replace(analysis.report.ranks[0].communication, slowed_ms=1.0)
    ranks = [replace(analysis.report.ranks[0], communication=slowed), *analysis.report.ranks[1:]]
    report = replace(analysis.report, ranks=ranks)
    figures = dict(zip(*columns_of(block(report, Table, "ranks"), ranks[0]), strict=True))
    assert figures["computes"] + figures["slowed"] == pytest.approx(ranks[0].compute_ms)
    bars = {bar["name"]: bar for bar in block(report, Chart, "ranks_step").figure["data"]}
    assert bars["compute"]["x"][-1] == pytest.approx(figures["computes"])
    assert bars[SLOWED]["x"][-1] == figures["slowed"] == 1.0


def columns_of(table, row) -> tuple[list[str], list[object]]:
    return [c.heading for c in table.columns], [c.value_of(row) for c in table.columns]


def costs_of(report: RanksReport) -> str:
    (cards,) = [b for b in ranks_document(report).verdict if isinstance(b, Facts)]
    return dict(cards.pairs)["cost of late ranks"]


def test_the_cures_are_for_the_program_that_was_captured(analysis):
    late, other = analysis.ranks[LATE], analysis.ranks[0]
    assert late.run.framework == "pytorch" and not any(
        "token_storage" in line for line in elsewhere(analysis)
    )
    ours = replace(late, run=replace(late.run, framework="trainer"))
    advice = next_steps(ours, "data", None)
    assert advice and advice != elsewhere(analysis)
    assert not any("DataLoader" in line for line in advice)
    assert next_steps(other, "gpu_compute", "slower_kernels")[0].startswith(
        "Measure the GPU of rank 0"
    )


def elsewhere(analysis: RanksAnalysis) -> list[str]:
    return next_steps(analysis.ranks[LATE], "data", None)


def block(report, kind, name):
    sections = ranks_document(report).sections
    return next(
        b for section in sections for b in section.blocks if isinstance(b, kind) and b.name == name
    )
