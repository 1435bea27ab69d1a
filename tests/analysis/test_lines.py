"""The line of the program that made each kernel, from a trace with Python's frames."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from profiling.analysis.difference.compared import compared_capture
from profiling.analysis.difference.comparison import compare
from profiling.analysis.open_report import Capture, open_report
from profiling.analysis.source.own_code import Frame, own_frames
from profiling.analysis.source.source_files import SourceFiles
from profiling.analysis.sum_records import Lines
from profiling.report.comparison.document import comparison_document
from profiling.report.renderers.markdown import markdown
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from profiling.report.single.lines import line_texts
from profiling.report.single.screen import first_screen

MAIN, AUTOGRAD, OTHER = 10, 11, 12
MODEL = """from torch.nn import functional as F

class Model:
    def __init__(self):
        self.product = nn.Linear(1, 1)

    def forward(self, x):
        y = self.product(x)
        return (
            x
            + F.softmax(y)
        )
"""
SCRIPT = "loss = model(x)\nloss.backward()\noptimizer.step()\n"


def event(category: str, name: str, start: int, end: int, thread: int = MAIN, **args) -> dict:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start,
        "dur": end - start,
        "args": args,
    }


def frame(name: str, start: int, end: int, thread: int = MAIN) -> dict:
    return event("python_function", name, start, end, thread)


def operator(name: str, start: int, end: int, thread: int, sequence: int, forward: int = 0) -> dict:
    numbers = {"Sequence number": sequence, "Fwd thread id": forward}
    return event("cpu_op", name, start, end, thread, **numbers)


def kernel(name: str, launch: int, thread: int = MAIN, took: int = 10) -> list[dict]:
    """A launch, and its kernel, which takes `took` us."""
    call = event("cuda_runtime", "cudaLaunchKernel", launch, launch + 1, thread, correlation=launch)
    where = {"device": 0, "stream": 7, "correlation": launch}
    return [call, event("kernel", name, launch + 100, launch + 100 + took, 7, **where)]


def events(softmax: int = 10) -> list[dict]:
    """A step; `softmax` is how long its kernel takes, in us."""
    return [
        frame("script.py(1): <module>", 0, 2000),
        frame("model.py(7): forward", 100, 200),
        frame("nn.Module: Linear_0", 101, 109),
        operator("aten::linear", 102, 108, MAIN, 6),
        operator("aten::addmm", 103, 107, MAIN, 6),
        *kernel("product", 105),
        frame("torch/nn/functional.py(5): softmax", 110, 130),
        operator("aten::detach", 111, 112, MAIN, 7),
        operator("aten::softmax", 115, 125, MAIN, 7),
        *kernel("softmax", 120, took=softmax),
        operator("aten::add", 140, 150, MAIN, 8),
        *kernel("add", 145),
        frame("loader.py(1): load", 100, 700, OTHER),
        *kernel("loading", 450, OTHER),
        *kernel("of a thread without frames", 470, 13),
        operator("aten::mul", 116, 120, OTHER, 7),
        frame("torch/_tensor.py(9): backward", 300, 600),
        frame("<built-in method run_backward of EngineBase object>", 310, 590),
        operator("autograd::engine::evaluate_function: AddBackward0", 312, 318, AUTOGRAD, 8, 1),
        operator("autograd::engine::evaluate_function: SoftmaxBackward0", 320, 340, AUTOGRAD, 7, 1),
        operator("SoftmaxBackward0", 321, 339, AUTOGRAD, 7, 1),
        operator("aten::mul", 322, 338, AUTOGRAD, 0),
        *kernel("softmax backward", 330, AUTOGRAD),
        operator("autograd::engine::evaluate_function: AddmmBackward0", 350, 370, AUTOGRAD, 6, 1),
        *kernel("product backward", 360, AUTOGRAD),
        frame("ours/kernel.py(4): backward", 355, 357, AUTOGRAD),
        *kernel("own backward", 356, AUTOGRAD),
        *kernel("accumulate", 400, AUTOGRAD),
        frame("torch/optim/optimizer.py(3): wrapper", 700, 800),
        *kernel("adamw", 750),
        event("kernel", "launched earlier", 5, 15, 7, device=0, stream=7, correlation=1),
    ]


def capture_of(folder: Path, softmax: int = 10) -> Capture:
    path = folder / "run.trace.json"
    path.write_text(json.dumps({"with_stack": 1, "traceEvents": events(softmax)}))
    return open_report(path)


def lines_of(folder: Path) -> Lines:
    lines = capture_of(folder).report.lines
    assert lines is not None
    return lines


def sources_by_place(lines: Lines) -> dict[str, list[str]]:
    return {row.place: sorted(row.found_ms) for row in lines.lines}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in an empty folder: sources are also read in the current one."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    for name, text in (("model.py", MODEL), ("script.py", SCRIPT)):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1, 1))
    return tmp_path


def test_functions_are_found_without_their_source(tmp_path):
    lines = lines_of(tmp_path)
    assert sources_by_place(lines) == {
        "model.py:7": ["forward", "launch"],
        "script.py:1": ["backward_call", "launch"],
        "loader.py:1": ["launch"],
        "ours/kernel.py:4": ["launch"],
    }
    assert [row.exact for row in lines.lines] == [False] * 4
    assert [row.count for row in lines.lines] == [5, 2, 1, 1]
    assert (lines.of, lines.total_ns, lines.with_line_ns) == ("kernels", 110_000, 90_000)
    assert lines.percent == pytest.approx(100 * 9 / 11)
    assert sum(row.ms for row in lines.lines) == pytest.approx(0.09)


def test_what_a_cuda_graph_replays_has_no_line(tmp_path):
    path, replay = tmp_path / "run.trace.json", kernel("softmax", 170)
    replay[0]["name"] = "cudaGraphLaunch"
    found = [*events(), *kernel("product", 160), *replay]
    path.write_text(json.dumps({"with_stack": 1, "traceEvents": found}))
    report = open_report(path).report
    assert report.lines is not None
    assert (report.lines.total_ns, report.lines.with_line_ns) == (130_000, 100_000)
    assert report.lines.replayed_ns == 10_000
    printed = markdown(report_document(report))
    assert "7.7 % is in a CUDA graph: its kernels have the line of the replay; capture" in printed


def test_the_source_tells_lines_of_calls_that_it_has_once(program):
    lines = lines_of(program)
    assert sources_by_place(lines) == {
        "model.py:8": ["forward", "launch"],  # self.product, made of nn.Linear
        "model.py:11": ["forward", "launch"],  # softmax, not the first line of its statement
        "model.py:10": ["launch"],  # the only +
        "script.py:2": ["backward_call"],
        "script.py:3": ["launch"],
        "loader.py:1": ["launch"],
        "ours/kernel.py:4": ["launch"],
    }
    inexact = {row.place for row in lines.lines if not row.exact}
    assert inexact == {"loader.py:1", "ours/kernel.py:4"}


@pytest.mark.parametrize("change", ["newer", "another function", "no Python"])
def test_a_source_that_is_not_the_one_that_ran_tells_nothing(program, change):
    path = program / "model.py"
    path.write_text({"another function": MODEL.replace("forward", "other")}.get(change, "1 +"))
    if change != "newer":
        os.utime(path, (1, 1))
    else:
        os.utime(path, (4e9, 4e9))
    assert "model.py:7" in sources_by_place(lines_of(program))


@pytest.mark.parametrize("name", ["../model.py", "{}/model.py", "a\0.py", "x" * 5000 + ".py"])
def test_sources_elsewhere_are_not_read(program, name):
    run = program / "run"
    run.mkdir()
    (run / "run.trace.json").touch()
    frame = Frame(name.format(program), 7, "forward")
    files = SourceFiles(run / "run.trace.json")
    assert not files.place(frame, "torch/nn/functional.py(5): softmax", 0, 1).exact


def test_compiled_kernels_have_the_lines_that_they_were_made_of(program):
    traces = {
        f'  File "{program}/{name}.py", line {line}, in forward\n    y = x\n'
        for name, line in (("model", 8), ("model", 11), ("site-packages/library", 3))
    }
    log = program / "dedicated_log_torch_trace_1.log"
    kernels = {"softmax:1": sorted(traces), "add:2": [], "product:3": ["nothing known"]}
    named = '{"artifact": {"name": "inductor_provenance_tracking_kernel_stack_traces"}}\n\t'
    log.write_text(
        f'V1 x] {{"other": 1}}\n\t{{"softmax": 3}}\nV1 x] {named}{json.dumps(kernels)}\n'
    )
    compiled = next(row for row in lines_of(program).lines if row.longest == "softmax")
    assert (compiled.place, compiled.also) == ("model.py:8", ["model.py:11"])
    assert list(compiled.found_ms) == ["compiled"]
    another = {"softmax:9": [f'  File "{program}/model.py", line 10, in forward\n']}
    log.write_text(f"{log.read_text()}V1 x] {named}{json.dumps(another)}\n")
    assert "compiled" not in {how for row in lines_of(program).lines for how in row.found_ms}
    log.write_text(f"V1 x] {named}{{\n")
    findings = [finding.what for finding in capture_of(program).report.health.findings]
    assert any("lines of compiled kernels are not known" in what for what in findings)


TWICE = """class Model:
    def __init__(self):
        self.first = Linear(1, 1)
        self.second = Linear(1, 1) if wide else None
        self.other = make_linear()

    def forward(self, x):
        BODY

    def later(self, x):
        self.first(x)
"""


@pytest.mark.parametrize(
    ("body", "turns", "lines"),
    [
        ("self.second(\nself.first(x))", 2, [9, 8]),  # the inner call is the first
        ("self.first(x); y = 1\n        self.second(x)", 2, [8, 9]),
        ("self.first(x)\n        if y: self.second(x)", 2, [7, 7]),
        ("self.first(x)\n        for y in x: self.second(x)", 2, [7, 7]),
        ("self.first(x)\n        self.other(x)", 2, [7, 7]),
        ("self.first(x)", 1, [8]),
        ("for y in x: F.relu(x)", 2, [7, 7]),
    ],
)
def test_calls_of_one_kind_have_their_lines_in_turn(tmp_path, body, turns, lines):
    (tmp_path / "model.py").write_text(TWICE.replace("BODY", body))
    capture = tmp_path / "run.trace.json"
    capture.touch()
    files, frame = SourceFiles(capture), Frame("model.py", 7, "forward")
    places = [files.place(frame, f"nn.Module: Linear_{turn}", turn, turns) for turn in range(turns)]
    assert [place.line for place in places] == lines
    assert all(place.exact == (place.line != 7) for place in places)


def test_code_of_the_program_is_told_from_libraries():
    own = ["model.py(7): forward", "vllm/layers.py(1): apply", "/tmp/ipykernel_5/1.py(2): <module>"]
    own += ["training/step/clock.py(3): lap", "profiling/model.py(3): forward"]
    others = ["torch/nn/functional.py(5): relu", "contextlib.py(1): inner", "<string>(1): <lambda>"]
    others += ["/usr/lib/python3.11/x/site-packages/a.py(1): b", "nn.Module: Linear_0"]
    others += [
        "/tmp/cache/ab/" + "cab".ljust(52, "q") + ".py(9): call",
        "profiling/recording/spans.py(1): after",
    ]
    others += [
        "<built-in method relu of type object at 0x1>",
        "_profiling_attach/a.py(1): open",
    ]
    names = [*own, *others]
    assert [name for name in names if own_frames(names)(name)] == own


@pytest.mark.parametrize("place", ["", "profiling/"])
def test_kernels_of_this_trainer_are_none_of_the_user_s_code(place):
    kernel, step = (
        f"{place}kernels/linear/__init__.py(9): apply",
        f"{place}training/step/step.py(3): f",
    )
    assert own_frames([kernel, step])(step) and not own_frames([kernel, step])(kernel)
    others_kernel = "kernels/linear.py(9): apply"
    assert own_frames([others_kernel])(others_kernel)


def test_reports_show_the_lines_and_the_source_around_them(program):
    capture = capture_of(program)
    texts = line_texts(capture.report.lines, capture.trace.file)
    assert texts["model.py:11"].splitlines()[-2:] == [
        "> 11              + F.softmax(y)",
        "  12          )",
    ]
    document = report_document(capture.report, texts=texts)
    text = markdown(document)
    assert "81.8 % of the kernel time in the steps comes from a line" in text
    assert "| `model.py:11` | `forward` |" in text
    html = page(document)
    assert 'href="#line-model.py-11"' in html and 'id="line-model.py-11"' in html
    assert "`model.py:8`" in markdown(first_screen(capture.report))


def test_a_timeline_knows_the_line_of_each_kernel(program):
    events = capture_of(program).step_events
    assert events is not None
    kernels = [events.names[name] for name in events.operations.name]
    lines = [events.names[line] if line >= 0 else None for line in events.launched.line]
    known = dict(zip(kernels, lines, strict=True))
    assert known["softmax backward"] == known["softmax"] == "model.py:11"
    assert known["launched earlier"] is None


def test_a_comparison_names_the_lines_that_changed(program):
    one = compared_capture(capture_of(program).report)
    other = compared_capture(capture_of(program, softmax=15).report)
    comparison = compare(one, other)
    assert not isinstance(comparison.lines, msgspec.UnsetType)
    changed = comparison.lines[0]
    assert (changed.function, changed.delta_ms) == ("model.py: forward", pytest.approx(0.005))
    assert changed.candidate_lines == ["model.py:11", "model.py:8", "model.py:10"]
    text = markdown(comparison_document(comparison))
    assert "| `model.py: forward` | 11, 8, 10 | 0.050 | 0.055 |" in text


def test_a_trace_without_frames_has_no_lines(tmp_path):
    path = tmp_path / "run.trace.json"
    path.write_text(json.dumps({"traceEvents": kernel("product", 105)}))
    assert open_report(path).report.lines is None
