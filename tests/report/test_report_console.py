"""A report in words: its document in a terminal and as Markdown, its tables, names, numbers."""

import io
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import Overlap
from profiling.analysis.sum_records import CallSum
from profiling.analysis.summary import summarize
from profiling.report.document import Column, Table
from profiling.report.kernel_label import kernel_label
from profiling.report.renderers import terminal
from profiling.report.renderers.markdown import markdown
from profiling.report.single import tables
from profiling.report.single.document import report_document, step_parts, steps_by_tool
from profiling.report.single.verdict_line import verdict_line
from profiling.report.text import shorten, shorten_apart
from profiling.shared import units
from profiling.timeline.opening import open_capture
from tests.helpers.captures import report_of, small_trace, write_trace
from tests.helpers.reports import MANIFEST, nothing_captured, report_with_manifest


def text_of(report, width=80) -> str:
    out = io.StringIO()
    terminal.show(report_document(report), Console(file=out, width=width, highlight=False))
    return out.getvalue()


def test_one_step_has_one_number():
    report = report_of("flash_eager")
    window = replace(report.window, steps=1, step_name="ProfilerStep", first_iteration=10)
    assert "1 step (ProfilerStep 10), " in steps_by_tool(replace(report, window=window))
    window = replace(window, steps=3)
    assert "3 steps (ProfilerStep 10 to 12), " in steps_by_tool(replace(report, window=window))


def test_the_verdict_comes_first_and_every_part_is_there():
    report = report_with_manifest()
    said = text_of(report)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    assert lines[2] == verdict_line(report)
    assert lines[2].startswith("Bound by ")
    parts = (
        "The typical step",
        "Phases",
        "Kernel families",
        "Idle gaps",
        "Kernels",
        "CUDA API calls",
    )
    parts += ("Copies and memsets", "Roofline", "The capture's health")
    places = [said.index(f"\n{part}\n") for part in parts]
    assert len(places) == len(parts)
    assert "100.0 % of the kernel time belongs to a phase" in said
    assert "backward" in said and "softmax_warp_backward<float>" in said


def test_it_fits_80_columns_and_a_pipe_gets_no_colours():
    said = text_of(report_with_manifest())
    assert max(len(line) for line in said.splitlines()) <= 80
    assert "\x1b" not in said
    assert re.search(r"unrolled_elementwise.*_copy\(float\) +copy +1,020 +23\.85 ms +9\.6 %", said)


def test_the_parts_of_the_typical_step_add_up():
    report = report_with_manifest()
    parts = step_parts(report)
    assert sum(ms for _, ms in parts) == pytest.approx(report.typical.ms, rel=1e-6)
    bar = next(line for line in text_of(report).splitlines() if "█" in line)
    assert len(bar.strip()) == terminal.BAR_WIDTH
    assert bar.count("█") == pytest.approx(0.83 * terminal.BAR_WIDTH, abs=1)


def test_what_was_not_captured_is_said_and_not_zero():
    said = text_of(nothing_captured())
    assert "No bottleneck can be named" in said
    assert "Attribution: not known" in said
    assert "Not captured: no GPU activity" in said
    assert re.search(r"GPU busy +–", said)
    assert "0 ms" not in said.split("The capture's health")[0].split("Phases")[1]


def test_markdown_has_whole_tables_and_no_markup_of_names():
    report = report_with_manifest()
    kernel = replace(report.kernels[0], name="evil|`<img src=x onerror=alert(1)>`\nname")
    phase = replace(report.ranges[0], name="<b>data</b>|x")
    report = replace(
        report,
        kernels=[kernel, *report.kernels[1:]],
        ranges=[phase, *report.ranges[1:]],
    )
    said = markdown(report_document(report))
    assert said.startswith("## Bound by ")
    assert "<img" not in said.replace("`evil¦'<img", "") and "<b>data" not in said
    assert "\\<b\\>data\\</b\\>\\|x" in said
    for block in re.findall(r"(?:^\|.*\n)+", said, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert len(said) < 12_000  # of a pull request's comment; GitHub takes 65,536
    assert markdown(report_document(nothing_captured())).startswith("## No bottleneck can be named")


def test_overlap_is_told_where_there_is_any():
    report = report_with_manifest()
    hidden = Overlap("communication", 2.0, 1.5, 0.5, hidden_percent=75.0, slowed_ms=0.0)
    copies = Overlap("copies", 0.4, 0.0, 0.4, hidden_percent=0.0, slowed_ms=None)
    for rows in ([hidden, copies], [copies], [], None):
        changed = replace(report, overlap=rows)
        assert ("  hidden ms  " in text_of(changed)) == bool(rows)
        assert ("**Overlap.**" in markdown(report_document(changed))) == bool(rows)
    told = text_of(replace(report, overlap=[hidden, copies]))
    assert re.search(r"communication +2\.00 +1\.50 +75\.0 % +0\.500 +25\.0 %", told)
    slows = replace(hidden, slowed_ms=1.25)
    for row, is_told in ((slows, True), (hidden, False)):
        said = markdown(report_document(replace(report, overlap=[row, copies])))
        assert ("makes concurrent kernels 1.25 ms per step longer" in said) == is_told


def test_the_tables_of_a_page_are_in_a_terminal_and_in_markdown_too():
    report = report_with_manifest()
    calls = [CallSum("poll", 3, 30, 10.0, 10.0, 9, 11, 1.0, 100.0)]
    said = markdown(report_document(replace(report, os_calls=calls)))
    assert "| `poll` | 3 | 30 ns | 10 ns | 100.0 % |" in said
    for title in ("Single ranges", "Launch geometry", "Bandwidth of copies", "Launch queue"):
        assert title in said and f"\n{title}\n" in text_of(report)
    queue = report.launch_queue
    assert f"{queue.max_length:,} at most" in said
    unknown = replace(report, launches=None, copies=None, launch_queue=None)
    for title in ("Launch geometry", "Bandwidth of copies", "Launch queue", "OS runtime calls"):
        assert title not in markdown(report_document(unknown)) + text_of(unknown)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT",) * 2,
        ("[CUDA memcpy Host-to-Device]",) * 2,
        (
            "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>"
            "(int, T2, const T1 *)",
            "vectorized_layer_norm_kernel<float>",
        ),
        (
            "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::"
            "gpu_kernel_impl_nocast<at::native::<unnamed>::masked_fill_kernel(at::TensorIterator &"
            ", const c10::Scalar &)::[lambda() (instance 1)]::operator ()() const::[lambda(c10::"
            "BFloat16, bool) (instance 1)]>(at::TensorIteratorBase &)::[lambda(int) (instance 1)]>"
            "(int, T3)",
            "elementwise · masked_fill(BFloat16, bool)",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, "
            "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::"
            "MulFunctor<float>>, std::array<char *, 3>>"
            "(int, T2, T3)",
            "vectorized_elementwise · Mul<float>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_s161616gemm_bf16_16x16_128x1_tn_align8>"
            "(T1::Params)",
            "cutlass_80_wmma_tensorop_s161616gemm_bf16_16x16_128x1_tn_align8",
        ),
        ("_ZN2at6native9my_kernelIfEEvPf", "at::native::my_kernel"),
        ("", ""),
        ("void <<<(", "void <<<("),
    ],
)
def test_kernel_names_are_readable(name, label):
    assert kernel_label(name) == label


def test_a_long_name_keeps_both_ends():
    assert shorten("triton_poi_fused_" + "x" * 100 + "_42", 30).startswith("triton_poi_fused_")
    assert shorten("triton_poi_fused_" + "x" * 100 + "_42", 30).endswith("_42")
    assert len(shorten("y" * 100, 30)) == 30


def test_names_of_one_table_are_cut_where_they_are_alike():
    gemm = "sm80_xmma_gemm_f32f32_f32f32_f32_{}_n_tilesize{}_stage3_warpsize2x2x1_kernel__5x_cublas"
    names = [gemm.format(*each) for each in (("nn", "64x64"), ("nt", "64x64"), ("nn", "32x128"))]
    cut = shorten_apart([*names, names[0], "softmax_warp_forward"], 30)
    assert cut[:3] == [
        "sm80_xmma_…nn_n_tilesize64x64…",
        "sm80_xmma_…nt_n_tilesize64x64…",
        "sm80_xmma_…nn_…tilesize32x128…",
    ]
    assert cut[3:] == [cut[0], "softmax_warp_forward"], "the others stay as they are"
    assert max(map(len, cut)) <= 30


def test_numbers_have_sensible_digits():
    told = [
        units.milliseconds(ms) for ms in (None, 4e-16, 0.0001, 0.01234, 1.2345, 123.45, 12345.6)
    ]
    assert told == ["–", "0", "<0.001", "0.012", "1.23", "123.5", "12,346"]
    assert [units.duration_ns(ns) for ns in (7, 1500, 2.5e6, 3e9, None)] == [
        "7 ns",
        "1.50 µs",
        "2.50 ms",
        "3.00 s",
        "–",
    ]
    changes = [units.change_ms(ms) for ms in (0.877, -0.218, 0.0001, -0.0001, 0, None)]
    assert changes == ["+0.877", "-0.218", "+<0.001", "-<0.001", "0", "–"]
    precise = [units.precise(value) for value in (0.88281, 12.34567, 1234.5, None)]
    assert precise == ["0.8828", "12.346", "1,234", "–"]
    assert [units.change_percent(p) for p in (2.34, -74.7)] == ["+2.3 %", "-74.7 %"]
    assert [units.size_bytes(n) for n in (8, 1.5e6, 3e9)] == ["8 B", "1.5 MB", "3.0 GB"]


def test_the_whole_name_stays_beside_the_label():
    table = tables.kernels(report_with_manifest(), {})
    name = table.columns[0].value_of(table.rows[0])
    assert name.text == "unrolled_elementwise · direct_copy(float)"
    assert name.whole.startswith("void at::native::unrolled_elementwise_kernel<")


@pytest.mark.parametrize("name", ["slow_eager", "flash_compile"])
def test_no_column_of_a_report_is_left_out_at_80(name):
    assert "a wider terminal" not in text_of(report_of(name))


def drawn(table, width) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(terminal.grid(table, width))
    return out.getvalue()


def test_columns_that_do_not_fit_are_left_out_from_the_right_and_named():
    columns = [Column("kernel", "name", "code", True)]
    columns += [Column(f"figure {i}", f"f{i}", "number", True) for i in range(6)]
    columns.append(Column("why", "why", "text", True))
    figures = {f"f{i}": 1000 + i for i in range(6)}
    row = SimpleNamespace(name="a_very_long_name_of_a_kernel", why="registers", **figures)
    table = Table("t", "Title", "Note.", columns, [row])
    assert "a wider terminal" not in drawn(table, 120)
    said = drawn(table, 60)
    assert max(map(len, said.splitlines())) <= 60
    assert "a wider terminal also shows figure 3, figure 4, figure 5" in said
    assert "1,002" in said and "1,003" not in said and "registers" in said


def test_a_heading_as_long_as_a_file_name_costs_no_column():
    sides = ("a_capture_of_last_week_on_the_large_machine", "the_same_with_another_attention")
    columns = [Column("part of the step", "part", "text", True)]
    columns += [Column(name, name, "ms", True) for name in sides]
    row = SimpleNamespace(part="idle: gaps between queued kernels", **dict.fromkeys(sides, 12.34))
    said = drawn(Table("t", "Title", "Note.", columns, [row]), 60)
    assert max(map(len, said.splitlines())) <= 60
    assert said.count("12.34") == 2 and "a wider terminal" not in said
    assert "a_capt" in said and "…" in said


def test_a_line_of_the_program_stays_where_its_function_is_cut():
    name = "my_quite_long_module_of_a_model.py:1234 (forward_with_a_long_name)"
    assert shorten(name, 60) == "my_quite_long_module_of_a_model.py:1234 (forward_with…_name)"
    assert shorten(name, 40) == "my_quite_long_module_of_a_model.py:1234"
    assert shorten(name, 30) == "my_quite_long_module…l.py:1234"


def test_words_in_the_first_column_are_wrapped():
    columns = [Column("with", "change", "text", True), Column("peak", "peak", "text", True)]
    words = "batch 48, blocks computed again in backward, whole state shared by 8 ranks (fsdp)"
    table = Table("t", "Title", "", columns, [SimpleNamespace(change=words, peak="12.0 MiB")])
    said = drawn(table, 60)
    assert max(map(len, said.splitlines())) <= 60 and "…" not in said
    assert " ".join(said.replace("12.0 MiB", "").split()).endswith(words)
    rows = [SimpleNamespace(change=f"Device-to-{to}", peak="0" * 50) for to in ("Host", "Device")]
    assert "Device-to-" not in drawn(replace(table, rows=rows), 62), "what has no blanks is cut"


def test_a_run_on_a_cpu_is_told_by_its_phases_and_operators_alone(tmp_path):
    trace = small_trace()
    kept = ("user_annotation", "cpu_op", None)
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") in kept]
    path = write_trace(tmp_path / "x.trace.json", trace)
    analysis = Analysis(open_capture(path))
    cpu = replace(MANIFEST, device="cpu", config=MANIFEST.config | {"device": "cpu"})
    said = markdown(report_document(summarize(analysis, cpu)))
    assert "Bound by the CPU: the run has no GPU" in said and "aten::mm" in said
    for silly in ("GPU ms", "MFU", "no GPU activity", "with a GPU", "--preset", "–"):
        assert silly not in said, silly
    elsewhere = markdown(report_document(summarize(analysis, None)))
    assert "no GPU activity was captured" in elsewhere
