"""Attention lab: the work it counts, its reference, and its rows, real ones on a CPU."""

import io
import json
import re
import warnings
from dataclasses import replace

import pytest
import torch
import yaml
from rich.console import Console
from torch.nn import functional as F

import model
from cli.errors import user_errors
from profiling.lab import attention_timing, attention_work
from profiling.lab.attention_timing import measure_case, measurement, note
from profiling.lab.attention_work import (
    Call,
    Case,
    Shape,
    errors,
    flops,
    minimal_bytes,
    reference,
)
from profiling.report.charts import log_ticks
from profiling.report.lab.attention_document import (
    attention_document,
    kernels_section,
    slow_against_flash,
    speed_sentence,
)
from profiling.report.renderers import terminal
from profiling.report.renderers.page import page
from profiling.shared.measurements import (
    BACKENDS,
    AttentionResults,
    LaunchCount,
    Measurement,
    Timing,
)
from profiling.verbs import attention as attention_command
from tests.helpers.chromium import open_page
from tests.helpers.figures import figures_of
from tests.paths import PROJECT
from validation.axe import violations
from validation.browser import resize

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
SMALL = Shape(2, 2, 32, 16)
SMALL_FLAGS = "--device cpu --heads 2 --head-dim 16 --tokens 64 --max-s 0.01 --dtype float32"


def case(backend, shape=SMALL, dtype="float32", dropout=0.0, backward=False, device=CPU):
    return Case(backend, shape, dtype, dropout, backward, device)


def tensors(shape, count, dtype=torch.float64):
    torch.manual_seed(1)
    sizes = (shape.batch, shape.heads, shape.seq, shape.head_dim)
    return [torch.randn(sizes, dtype=dtype) for _ in range(count)]


def test_the_work_of_the_causal_function():
    shape = Shape(3, 2, 5, 7)
    pairs = sum(1 for query in range(5) for key in range(5) if key <= query)
    assert flops(shape, "forward") == 3 * 2 * pairs * (2 * 7 + 2 * 7)
    assert flops(shape, "backward") == 2.5 * flops(shape, "forward")
    assert minimal_bytes(shape, "forward", 2) == 4 * 3 * 2 * 5 * 7 * 2
    assert minimal_bytes(shape, "backward", 4) == 8 * 3 * 2 * 5 * 7 * 4


@pytest.mark.parametrize("queries", (5, 1024))
def test_the_reference_is_what_autograd_makes_of_the_formula(queries, monkeypatch):
    monkeypatch.setattr(attention_work, "QUERIES", queries)
    q, k, v, grad = tensors(Shape(2, 3, 17, 8), 4)
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    scores = leaves[0] @ leaves[1].mT / 8**0.5
    causal = torch.ones(17, 17, dtype=torch.bool).tril()
    out = scores.masked_fill(~causal, float("-inf")).softmax(-1) @ leaves[2]
    out.backward(grad)
    found = reference(q, k, v, grad)
    for mine, theirs in zip(found, [out, *(leaf.grad for leaf in leaves)], strict=True):
        torch.testing.assert_close(mine, theirs.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(reference(q, k, v, None)[0], found[0])


def test_errors_are_the_worst_of_all_results():
    exact = [torch.ones(4), torch.full((4,), 2.0)]
    off = [exact[0].clone(), torch.tensor([2.0, 2.0, 2.0, 2.4])]
    absolute, relative = errors(off, [tensor.double() for tensor in exact])
    assert absolute == pytest.approx(0.4) and relative == pytest.approx(0.1)
    assert errors([torch.tensor([1.0, float("nan")])], [torch.ones(2)]) == (None, None)


def test_what_is_measured_is_the_model_on_tensors_laid_out_as_the_models(monkeypatch):
    seen = []
    real = model.attend
    monkeypatch.setattr(
        model, "attend", lambda q, k, v, *rest: seen.append((q, k, v)) or real(q, k, v, *rest)
    )
    shape = Shape(2, 3, 32, 16)
    config = model.ModelConfig(n_head=3, n_embd=48, block_size=32, attention="flash", dropout=0.0)
    model.CausalSelfAttention(config)(torch.randn(2, 32, 48))
    call = Call(case("flash", shape))
    assert call.function is real
    for theirs, mine in zip(seen[0], call.inputs, strict=True):
        assert (mine.shape, mine.stride()) == (theirs.shape, theirs.stride())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ("slow", "math", "flash"))
def test_a_backend_of_a_cpu_is_right_in_both_directions(backend):
    forward, backward = measure_case(case(backend, backward=True), 0.01)
    for row in (forward, backward):
        assert row.status == "ok" and row.median_ms > 0 and row.samples >= 6
        assert row.relative_error < 1e-5 and row.max_abs_error < 1e-4
        assert row.gbps == pytest.approx(row.bytes / row.median_ms / 1e6)
        assert row.tflops == pytest.approx(row.flops / row.median_ms / 1e9)
        assert row.percent_of_peak is None and row.peak_memory_bytes is None
        assert row.ran == ("flash" if backend == "flash" else "unfused")
        assert row.note is None
    names = {kernel.name for kernel in backward.kernels}
    assert any("backward" in name or "bmm" in name for name in names)


def test_a_wrong_kernel_shows_in_the_error(monkeypatch):
    def without_mask(q, k, v, *_):
        return F.scaled_dot_product_attention(q, k, v)

    monkeypatch.setattr(attention_work, "attend", without_mask)
    (row,) = measure_case(case("math"), 0.01)
    assert row.relative_error > 0.1


@pytest.mark.slow
def test_what_a_cpu_lacks_is_listed_with_the_reason():
    for backend, reason in (("efficient", "only on CUDA"), ("cudnn", "only on CUDA")):
        (row,) = measure_case(case(backend, backward=True), 0.01)
        assert row.status == "refused" and reason in row.reason
        assert row.direction == "forward + backward" and not isinstance(row, Measurement)
    (row,) = measure_case(case("flex", backward=True), 0.01)
    assert row.status == "refused" and "backward" in row.reason
    (row,) = measure_case(case("flex", dropout=0.1), 0.01)
    assert row.reason == "FlexAttention has no dropout"


def test_dropout_is_timed_and_not_compared_and_the_kernel_that_stands_in_is_named():
    (row,) = measure_case(case("flash", dropout=0.2), 0.01)
    assert row.status == "ok" and row.relative_error is None
    assert row.ran == "unfused" and "math kernel" in row.note


def test_out_of_memory_is_a_result(monkeypatch):
    def too_much(self):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 48.00 GiB. GPU 0 has")

    monkeypatch.setattr(Call, "forward", too_much)
    (row,) = measure_case(case("flash"), 0.01)
    assert row.status == "out_of_memory"
    assert row.reason == "out of memory at 0.0 GiB, and 48.00 GiB more did not fit"


def test_what_the_host_has_no_memory_for_is_not_tried():
    (row,) = measure_case(case("slow", Shape(1, 64, 2**20, 16)), 0.01)
    assert row.status == "out_of_memory" and "not run" in row.reason


def test_the_refusal_is_the_pinned_kernels_own_reason():
    said = [
        "Memory efficient kernel not used because: (Triggered internally at sdp_utils.cpp:1)",
        "Memory Efficient attention has been runtime disabled. (Triggered internally at x:2)",
        "Flash attention kernel not used because: (Triggered internally at sdp_utils.cpp:3)",
        "Expected query, key and value to all be of dtype: {Half, BFloat16}. Got float. (Triggered",
    ]
    error = "No available kernel. Aborting execution."
    reason = attention_timing.refusal(case("flash"), said, error)
    assert (
        reason == "Expected query, key and value to all be of dtype: {Half, BFloat16}. Got float."
    )
    assert attention_timing.refusal(case("flash"), [], "No available kernel.\n\nAt length") == (
        "No available kernel."
    )


def test_pytorchs_own_refusal_reaches_the_row(monkeypatch):
    def refuse(*_):
        warnings.warn("Head dimension must be a multiple of 8. (Triggered at x)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr(attention_work, "attend", refuse)
    (row,) = measure_case(case("flash"), 0.01)
    assert (row.status, row.reason) == ("refused", "Head dimension must be a multiple of 8.")


def test_another_kernel_than_the_one_asked_for_is_said():
    on_gpu = case("flash", device=CUDA)
    assert note(on_gpu, "cudnn", 0) == "cudnn ran instead of flash"
    assert note(on_gpu, "flash", 0) is None and note(on_gpu, None, 0) is None
    assert "fused call" in note(case("compile", device=CUDA), "unfused", 1)


def request(*words):
    return attention_command.parse(list(words))


def test_the_defaults_are_a_call_of_the_trainer():
    trained = yaml.safe_load((PROJECT / "configs/shakespeare_char.yaml").read_text("utf-8"))
    config = model.ModelConfig()
    cases = attention_command.cases_of(request(), CPU)
    assert [c.backend for c in cases] == list(BACKENDS)
    assert {c.shape for c in cases} == {
        Shape(trained["batch_size"], config.n_head, config.block_size, 384 // config.n_head)
    }


def test_the_batch_keeps_the_tokens_of_a_call_or_is_given():
    lengths = "--seq=128,256,16384,32768"
    shapes = [c.shape for c in attention_command.cases_of(request(lengths, "--backends=slow"), CPU)]
    assert [(s.batch, s.seq) for s in shapes] == [(128, 128), (64, 256), (1, 16384), (1, 32768)]
    given = attention_command.cases_of(request(lengths, "--batch=3", "--backends=slow"), CPU)
    assert {c.shape.batch for c in given} == {3}


@pytest.mark.parametrize(
    "flags, said",
    (
        ("--seq 12,x", "--seq: 12,x"),
        ("--seq 0", "--seq: 0"),
        ("--tokens 8 --batch 2", "--batch: not allowed with argument --tokens"),
        ("--heads 0", "--heads: 0"),
        ("--dtype float64", "--dtype: invalid choice: 'float64'"),
        ("--dropout 1", "--dropout: 1"),
        ("--backends flas", "--backends flas"),
        ("--device gpu", "--device gpu"),
        ("--max-s 0", "--max-s: 0"),
        ("--json nowhere/a.json", "the folder nowhere does not exist"),
        ("--bogus", "--bogus"),
    ),
)
def test_a_bad_flag_is_one_line(flags, said, capsys):
    with pytest.raises(SystemExit) as end, user_errors():
        attention_command.main(flags.split())
    error = capsys.readouterr().err
    assert end.value.code == 2 and said in error and error.count("\n") == 1


@pytest.mark.slow
def test_the_command_measures_prints_and_writes(tmp_path, capsys):
    files = ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]
    words = [*SMALL_FLAGS.split(), "--seq=16,32", "--backends=slow,flash,cudnn", *files]
    assert attention_command.main(words) == 0
    printed = capsys.readouterr()
    for word in ("slow", "flash", "only on CUDA", "aten::", "peaks of this device are not known"):
        assert word in printed.out
    assert printed.err == "", "no terminal shows progress"
    document = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert [(row["backend"], row["seq"], row["batch"]) for row in document["rows"]] == [
        (backend, seq, 64 // seq) for seq in (16, 32) for backend in ("slow", "flash", "cudnn")
    ]
    made = (tmp_path / "a.html").read_text("utf-8")
    assert 'data-chart="time-forward"' in made and "memory-forward" not in made


def timing_of(ms, precise=True):
    return Timing(ms, (ms, ms), (ms, ms), 100, 0.01, True, precise)


def results_of(rows):
    return AttentionResults(
        device="NVIDIA H200",
        torch="2.11",
        dtype="bfloat16",
        dropout=0.0,
        heads=6,
        head_dim=64,
        tokens=None,
        backward=True,
        peak_tflops=989.4,
        peak_gbps=4800.0,
        empty_launch_ms=0.002,
        l2_flushed=True,
        rows=rows,
    )


def gpu_results():
    """Results as on a GPU of the data sheet: slow's memory grows with T^2, flash's with T."""
    rows = []
    kernels = [LaunchCount("<script>kernel", 2)], None
    for seq in (256, 512, 1024):
        for backend, ms, memory in (("slow", seq / 100, 8 * seq * seq), ("flash", 0.1, 4 * seq)):
            one = case(backend, Shape(1, 6, seq, 64), "bfloat16", backward=True)
            timing = timing_of(ms, precise=seq != 512)
            rows += [
                measurement(one, direction, timing, memory, (1e-3, 1e-3), kernels, None)
                for direction in ("forward", "backward")
            ]
        reason = "out of memory at 48.0 GiB"
        rows.append(attention_timing.failed_attempt(one, "out_of_memory", reason))
    return results_of(rows)


def printed_of(results, width=120):
    out = io.StringIO()
    terminal.show(attention_document(results), Console(file=out, width=width))
    return out.getvalue()


def test_the_page_shows_time_memory_and_roofline_over_length():
    made = page(attention_document(gpu_results()))
    figures = figures_of(made)
    assert set(figures) == {
        f"{what}-{direction}"
        for what in ("time", "memory", "roofline")
        for direction in ("forward", "backward")
    }
    lines = {line["name"]: line for line in figures["memory-forward"]["data"]}
    assert lines["slow"]["y"] == pytest.approx(lines["∝ T²"]["y"])
    assert lines["flash"]["y"] == pytest.approx(lines["∝ T"]["y"])
    names = [line["name"] for line in figures["roofline-backward"]["data"]]
    assert names[:2] == ["memory, 4,800 GB/s", "arithmetic, 989 TFLOP/s"]
    assert "4 of 12 medians did not converge" in made
    assert "out of memory at 48.0 GiB" in made and "<script>kernel" not in made


def test_every_backend_is_told_everywhere_and_one_that_no_table_has_too(monkeypatch):
    """A backend that a chart leaves out would look as if it had not been measured."""
    monkeypatch.setitem(BACKENDS, "new", replace(BACKENDS["flash"], name="new", colour="loss"))
    names = [*BACKENDS, "unheard"]
    rows = []
    for place, name in enumerate(reversed(names)):
        row = measurement(
            case("slow", Shape(1, 6, 256, 64), "bfloat16"),
            "forward",
            timing_of(1.0 + place),
            1000 + place,
            (None, None),
            ([LaunchCount(f"kernel_of_{name}", 1)], None),
            None,
        )
        rows.append(replace(row, backend=name))
    results = results_of(rows)
    made, printed = page(attention_document(results)), printed_of(results)
    for chart in figures_of(made).values():
        lines = {line["name"]: line for line in chart["data"]}
        drawn = [name for name in lines if name in names]
        assert drawn == names, "as the table has them, the unheard last"
        assert lines["new"]["line"]["color"] == "var(--loss)"
        assert lines["unheard"]["line"]["color"] == "var(--other)"
        colours = [lines[name]["line"]["color"] for name in names]
        assert len(set(colours)) == len(names)
    for name in names:
        assert re.search(rf"^ {name} +forward +256", printed, re.M), name
        assert f"kernel_of_{name}" in printed and f"kernel_of_{name}" in made
    failures = [
        attention_timing.failed_attempt(replace(one, backend=name), "refused", f"no {name} here")
        for one in [case("slow")]
        for name in names
    ]
    made, printed = page(attention_document(results_of(failures))), printed_of(results_of(failures))
    for name in names:
        assert f"no {name} here" in made and f"no {name} here" in printed


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_fit_and_the_figures_that_matter_stay(width):
    said = printed_of(gpu_results(), width)
    assert max(map(len, said.splitlines())) <= width
    header = next(line for line in said.splitlines() if "median " in line and "IQR " in line)
    assert "of peak" in header and "memory" in header
    assert ("of bandwidth" in header) == (width == 120)
    assert "flash at 256, 512, 1,024, out of memory: out of memory at 48.0 GiB" in said


def test_what_ran_is_one_row_for_each_backend_and_pass():
    rows = []
    for row in gpu_results().measurements:
        if row.backend == "flash":
            kernels = [LaunchCount("flash_fwd", 1)]
            if row.seq == 1024:
                kernels.append(LaunchCount("flash_fwd_splitkv", 1))
            row = replace(row, kernels=kernels)
        elif row.direction == "backward":
            row = replace(row, kernels=None, kernels_missing="no CUDA graph")
        rows.append(row)
    (table,) = kernels_section(results_of(rows)).blocks
    backend, direction, kernels = table.columns
    assert [(backend.value_of(row), direction.value_of(row)) for row in table.rows] == [
        ("slow", "forward"), ("slow", "backward"), ("flash", "forward"), ("flash", "backward"),
    ]  # fmt: skip
    cells = [kernels.value_of(row) for row in table.rows]
    assert cells[1].text == "no CUDA graph"
    assert cells[2].text == "flash_fwd, flash_fwd_splitkv"
    assert cells[2].whole == "flash_fwd; flash_fwd_splitkv at 1,024"


DRAWN = """
return [...document.querySelectorAll('[data-chart]')].map(chart =>
  chart.querySelectorAll('.scatterlayer .trace').length)
"""


@pytest.mark.slow
def test_chromium_draws_every_chart_without_an_error(browser, tmp_path):
    path = tmp_path / "attention.html"
    path.write_text(page(attention_document(gpu_results())), encoding="utf-8")
    open_page(browser, path)
    drawn = browser.execute_script(DRAWN)
    log = browser.get_log("browser")
    assert len(drawn) == 6 and min(drawn) >= 2
    assert not [entry for entry in log if entry["level"] == "SEVERE"]
    assert violations(browser) == []
    resize(browser, 703, media="print")  # a sheet of A4 between its margins
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 703


def test_slow_against_flash_in_a_sentence():
    assert slow_against_flash(gpu_results().measurements)[0] == (
        "forward, seq 1,024: flash is 102.4 × faster than slow (102.4 to 102.4); flash takes "
        "2048.0 × less memory"
    )


@pytest.mark.parametrize(
    ("slow", "flash", "said"),
    [
        (
            (2.0, 1.0, 3.0),
            (1.0, 0.5, 2.5),
            "it is not clear which is faster: flash is 0.4 to 6.0 × as fast as slow",
        ),
        ((2.0, 1.9, 2.1), (1.0, 0.9, 1.1), "flash is 2.0 × faster than slow (1.7 to 2.3)"),
        ((1.0, 0.9, 1.1), (2.0, 1.9, 2.1), "slow is 2.0 × faster than flash (1.7 to 2.3)"),
    ],
)
def test_the_faster_one_is_named_where_the_intervals_tell(slow, flash, said):
    rows = gpu_results().measurements[:2]
    sides = [
        replace(row, median_ms=middle, ci95_ms=(low, high))
        for row, (middle, low, high) in zip(rows, (slow, flash), strict=True)
    ]
    assert speed_sentence(*sides).startswith(said)


def test_an_axis_of_powers_has_labels_between_them_where_these_are_few():
    assert log_ticks(3.1, 8.0)["ticktext"] == ["1", "2", "5", "10", "20", "50"]
    assert log_ticks(0.004, 5000)["ticktext"] == [
        "0.001", "0.01", "0.1", "1", "10", "100", "1,000", "10,000",
    ]  # fmt: skip


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_on_a_gpu_ran_what_its_name_says(backend):
    shape = Shape(8, 6, 512, 64)
    forward, backward = measure_case(case(backend, shape, "bfloat16", 0.0, True, CUDA), 0.05)
    for row in (forward, backward):
        assert row.status == "ok", row.reason
        assert row.note is None and row.kernels_missing is None and row.kernels
        assert row.ran == (backend if BACKENDS[backend].fused else "unfused")
        assert row.relative_error < 0.02
    scores_bytes = 8 * 6 * 512 * 512 * 2
    assert (forward.peak_memory_bytes >= scores_bytes) == (not BACKENDS[backend].fused)
    assert backward.peak_memory_bytes >= forward.peak_memory_bytes / 2


@pytest.mark.gpu
@pytest.mark.alone
@needs_gpu
def test_what_a_gpu_refuses_and_what_does_not_fit():
    (row,) = measure_case(case("flash", dtype="float32", device=CUDA), 0.05)
    assert row.status == "refused" and "dtype" in row.reason
    (row,) = measure_case(case("slow", Shape(64, 64, 16384, 64), "bfloat16", device=CUDA), 0.05)
    assert row.status == "out_of_memory" and "GiB" in row.reason
    (row,) = measure_case(case("flash", dtype="bfloat16", device=CUDA), 0.05)
    assert row.status == "ok"
