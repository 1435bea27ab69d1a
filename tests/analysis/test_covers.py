"""Names that cover idle gaps: which is chosen, what it means, and which advice follows."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time import covers
from profiling.analysis.gpu_time.covers import Found
from profiling.analysis.records import Report
from profiling.analysis.summary import summarize
from profiling.shared.host_work import work_named
from profiling.timeline.trace import Ranges, Trace
from tests.helpers.programs import ADD, MAIN, MS, US, Program, calls_table

LENGTHS = "aten::_cudnn_attention_forward"
CALLS_PYTHON = "a compiled function calls Python, and the GPU waits for it"


def stalled(name: str, around: str = "aten::scaled_dot_product_attention") -> Program:
    """Six steps; in each the CPU works for 8 ms inside `name`, which `around` calls."""
    program = Program()
    for number in range(6):
        begin = program.host
        program.launch(100 * US, 20)
        open_ns = program.host
        program.work(200 * US)
        program.build.operator(program.host, program.host + 8 * MS, name)
        program.work(8 * MS)
        program.launch(100 * US)
        program.work(100 * US)
        program.build.operator(open_ns, program.host, around)
        program.launch(100 * US, 20, name=f"at::native::{ADD}")
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    return program


def reported(trace: Trace) -> Report:
    return summarize(Analysis(trace))


def test_the_innermost_operator_that_covers_the_gaps_is_named():
    report = reported(stalled(LENGTHS).trace(kind="kineto"))
    cover = report.idle.covered_by["cpu"]
    assert (cover.name, cover.kind) == (LENGTHS, "operator")
    assert cover.ms == pytest.approx(report.idle.by_cause["cpu"], rel=0.05)
    assert 0.95 * cover.of_ms < cover.ms <= cover.of_ms
    text = " ".join(report.bottleneck.evidence)
    assert f"are inside {LENGTHS}: plans of cuDNN for new shapes" in text
    assert report.bottleneck.next[0].startswith("Keep the lengths the same")
    assert not any("logging, hooks" in line for line in report.bottleneck.next)


def test_a_name_without_a_known_meaning_is_where_to_start():
    report = reported(stalled("mylib::tokenize").trace(kind="kineto"))
    assert report.bottleneck.next[0] == "Start with mylib::tokenize, which covers most of the gaps."


def test_a_known_name_that_is_open_nearly_always_explains_nothing():
    program = Program()
    for number in range(6):
        begin = program.host
        program.launch(100 * US)
        program.work(200 * US)
        program.build.operator(program.host, program.host + 8 * MS, "mylib::tokenize")
        program.work(8 * MS)
        program.launch(40 * MS)
        program.work(40 * MS)
        program.build.operator(begin, program.host, "aten::_convolution")
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    assert reported(program.trace(kind="kineto")).idle.covered_by["cpu"].name == "mylib::tokenize"


def test_names_that_end_in_numbers_are_one():
    trace = stalled("aten::mul", around="aten::linear").trace()
    rows = trace.operators.rows(trace.operators.name == trace.names.index("aten::mul"))
    texts = [f"aten::mul, seq = {number}, op_id = 9" for number in range(len(rows.name))]
    names = np.arange(len(texts)) + len(trace.names)
    marked = Ranges(*np.concatenate((columns_of(trace.ranges), columns_of(rows)), axis=1))
    marked.name[-len(texts) :] = names
    marked = marked.rows(np.argsort(marked.start_ns, kind="stable"))
    trace = replace(trace, names=[*trace.names, *texts], operators=None, ranges=marked)
    assert reported(trace).idle.covered_by["cpu"].name == "aten::mul"


def columns_of(table: Ranges) -> np.ndarray:
    return np.stack(list(vars(table).values()))


def test_gaps_without_a_name_are_not_explained():
    program = Program()
    for number in range(6):
        begin = program.host
        program.launch(100 * US, 20)
        program.work(8 * MS)
        program.launch(100 * US)
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    report = reported(program.trace(kind="kineto"))
    assert report.bottleneck.verdict == "cpu" and report.idle.covered_by == {}
    assert any("logging, hooks" in line for line in report.bottleneck.next)


def test_a_function_is_named_without_its_folders():
    trace = stalled("aten::mul", around="aten::linear").trace(kind="kineto")
    names = [*trace.names, "/home/me/train.py(12): log_metrics"]
    rows = trace.operators.rows(trace.operators.name == names.index("aten::mul"))
    frames = replace(rows, name=rows.name * 0 + len(names) - 1)
    report = reported(replace(trace, names=names, operators=None, frames=frames))
    cover = report.idle.covered_by["cpu"]
    assert (cover.name, cover.kind, cover.within) == ("train.py(12): log_metrics", "function", None)


MODULE, LOG, COUNT, DUMPS = (
    "train.py(1): <module>",
    "train.py(9): log",
    "train.py(12): count",
    "json.py(3): dumps",
)


def sampled(stalls: dict[str, int], period_ns: int = MS // 2) -> Trace:
    """`stalled`, whose stalls have samples of functions instead of an operator.

    Each function is open for so many nanoseconds longer than a stall, on both sides; the last of
    them is the innermost. All samples have MODULE around it.
    """
    trace = stalled("aten::mul", around="aten::linear").trace(kind="kineto")
    rows = trace.operators.rows(trace.operators.name == trace.names.index("aten::mul"))
    names = [*trace.names, MODULE, *stalls]
    first_ns, last_ns = int(trace.operators.start_ns.min()), int(trace.operators.end_ns.max())
    events = []
    for time_ns in range(first_ns, last_ns, period_ns):
        events.append((time_ns, MODULE))
        for name, longer_ns in stalls.items():
            begin, end = rows.start_ns - longer_ns, rows.end_ns + longer_ns
            if ((begin <= time_ns) & (time_ns < end)).any():
                events.append((time_ns, name))
    start_ns = np.array([time_ns for time_ns, _ in events])
    samples = Ranges(
        start_ns=start_ns,
        end_ns=start_ns + 1,
        name=np.array([names.index(name) for _, name in events]),
        **{
            column: np.repeat(getattr(rows, column)[:1], len(events))
            for column in vars(rows)
            if column not in ("start_ns", "end_ns", "name")
        },
    )
    return replace(trace, names=names, operators=None, sampled=samples)


def test_a_function_that_was_sampled_is_named_but_not_the_program_itself():
    for stalls, name in (({LOG: 0}, LOG), ({}, None)):
        report = reported(sampled(stalls))
        cover = report.idle.covered_by.get("cpu")
        assert (cover and cover.name) == name and report.lines is None


@pytest.mark.parametrize(("of_ns", "open_ns", "named"), [(94, 96, True), (60, 99, False)])
def test_a_function_that_is_seen_a_little_longer_than_long_gaps_is_named(of_ns, open_ns, named):
    found = [Found(2 * of_ns / (of_ns + open_ns), "function", LOG, of_ns, open_ns)]
    assert bool(covers.without_the_program(found, of_ns, window_ns=100)) == named


def test_of_sampled_functions_the_deepest_is_the_innermost_though_seen_more_often():
    log = Found(0.95, "function", LOG, 91, 91, depth=4.0)
    count = Found(0.96, "function", COUNT, 92, 92, depth=5.0)
    assert covers.nearly_as_tight([count, log]) == [log, count]


@pytest.mark.parametrize(("window_ns", "caller"), [(100, COUNT), (200, None)])
def test_where_gaps_are_nearly_all_the_innermost_caller_may_be_all_of_the_program(
    window_ns, caller
):
    opened = {LOG: window_ns, COUNT: window_ns - 1, DUMPS: 90}
    every = [Found(0.95, "function", name, 90, ns) for name, ns in opened.items()]
    assert covers.caller_of(every[-1], every, of_ns=97, window_ns=window_ns) == caller


def test_of_functions_the_innermost_is_named_and_what_calls_it():
    report = reported(sampled({LOG: 60 * US, COUNT: 30 * US, DUMPS: 0}, period_ns=20 * US))
    cover = report.idle.covered_by["cpu"]
    assert (cover.name, cover.within) == (DUMPS, LOG)


@pytest.mark.parametrize(
    "name",
    [
        "torch/nn/modules/container.py(253): Sequential.forward",
        "torch/optim/optimizer.py(530): Optimizer.profile_hook_step.<locals>.wrapper",
        "torch/optim/adam.py(227): Adam.step",
    ],
)
def test_a_function_of_pytorch_that_calls_others_is_not_named(name):
    report = reported(sampled({LOG: 30 * US, name: 0}, period_ns=20 * US))
    assert report.idle.covered_by["cpu"].name == LOG


def test_a_built_in_function_is_no_place():
    report = reported(sampled({"<built-in function next>": 60 * US, LOG: 0}, period_ns=20 * US))
    cover = report.idle.covered_by["cpu"]
    assert (cover.name, cover.within) == (LOG, None)


def test_samples_are_shares_of_the_gaps_however_far_apart_they_are():
    cover = reported(sampled({LOG: 0}, period_ns=1 * MS)).idle.covered_by["cpu"]
    assert cover.name == LOG and cover.ms == cover.of_ms


def test_few_samples_name_nothing():
    assert not reported(sampled({LOG: 0}, period_ns=4 * MS)).idle.covered_by


SAMPLER = "torch/utils/data/sampler.py(182): RandomSampler.__iter__"
PIPE = "multiprocessing/connection.py(395): Connection._recv"


def loading(function: str) -> Report:
    """Report of `stalled`, whose stalls make batches in `function`, by samples."""
    trace = sampled({LOG: 60 * US, function: 0}, period_ns=20 * US)
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    operators = stalled("aten::mul", around="aten::linear").trace(kind="kineto").operators
    rows = operators.rows(operators.end_ns - operators.start_ns > 8 * MS)
    loads = {"name": np.repeat(len(trace.names), len(rows.name)).astype(np.int32)}
    loads |= {"closed": np.ones(len(rows.name), bool), "domain": np.full(len(rows.name), -1)}
    ranges = Ranges(**(vars(rows) | loads))
    columns = {
        column: np.concatenate((getattr(trace.ranges, column), getattr(ranges, column)))
        for column in vars(ranges)
    }
    order = np.argsort(columns["start_ns"], kind="stable")
    ranges = Ranges(**{column: values[order] for column, values in columns.items()})
    return reported(replace(trace, names=[*trace.names, name], ranges=ranges))


def test_a_function_that_makes_batches_is_named_and_a_sampler_is_no_matter_of_workers():
    report = loading(SAMPLER)
    assert report.bottleneck.verdict == "data"
    text = " ".join(report.bottleneck.evidence)
    assert f"are inside {SAMPLER} (in {LOG}): the sampler draws the order" in text
    assert report.bottleneck.next[0].startswith("Draw the order rarely")


def test_a_wait_for_workers_is_not_named_as_what_makes_batches():
    assert "data" not in loading(PIPE).idle.covered_by
    assert loading(COUNT).idle.covered_by["data"].name == COUNT


def with_os_calls(trace: Trace, name: str, thread: int) -> Trace:
    """The stalls of `stalled` as calls of the system's libraries instead of operators."""
    names = [*trace.names, name]
    rows = trace.operators.rows(trace.operators.name == names.index("aten::mul"))
    calls = [
        (int(start), int(end), len(names) - 1, 7, thread)
        for start, end in zip(rows.start_ns, rows.end_ns, strict=True)
    ]
    return replace(trace, names=names, operators=None, os_calls=calls_table(calls))


@pytest.mark.parametrize(
    ("name", "said"),
    [("pthread_cond_timedwait", "GIL"), ("fsync", "files are written")],
)
def test_a_call_of_the_launching_thread_is_named(name, said):
    trace = stalled("aten::mul", around="aten::linear").trace()
    report = reported(with_os_calls(trace, name, MAIN))
    assert report.idle.covered_by["cpu"].kind == "os_call"
    assert any(said in line for line in report.bottleneck.evidence)
    elsewhere = reported(with_os_calls(trace, name, MAIN + 9))
    assert "cpu" not in elsewhere.idle.covered_by


def test_a_wait_is_named_with_the_function_around_it():
    program = Program()
    for number in range(6):
        begin = program.host
        program.launch(100 * US, 20)
        program.work(50 * US)
        called = program.host
        program.item()
        program.build.operator(called, program.host, "aten::item")
        program.build.range(called - 20 * US, program.host + 20 * US, "log_loss", domain=None)
        program.work(300 * US)
        program.launch(100 * US)
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    cover = reported(program.trace(kind="kineto")).idle.covered_by["synchronization"]
    assert (cover.name, cover.kind, cover.within) == ("aten::item", "operator", "log_loss")


@pytest.mark.parametrize("closure", [False, True])
def test_an_optimizer_that_calls_the_whole_step_does_not_work_on_the_host(closure):
    """Lightning gives the optimizer's step a closure: forward and backward run in it."""
    program = Program()
    for number in range(6):
        begin = program.host
        program.launch(100 * US, 20)
        program.work(300 * US)
        backward = "autograd::engine::evaluate_function: AddmmBackward0"
        called = program.host
        if closure:
            program.build.operator(called + 1 * US, called + 9 * US, backward)
        program.work(8 * MS)
        program.build.range(called, program.host, "Optimizer.step#AdamW.step", domain=None)
        program.launch(100 * US)
        program.build.operator(program.host, program.host + 9 * US, "aten::linear")
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    found = reported(program.trace(kind="kineto"))
    assert ("Optimizer.step#AdamW.step" in str(found.idle.covered_by)) != closure
    assert ("the optimizer works on the host" in " ".join(found.bottleneck.evidence)) != closure


def test_events_of_one_name_inside_each_other_count_once():
    trace = stalled("aten::to").trace(kind="kineto")
    twice = Ranges(*(column.repeat(2) for column in vars(trace.operators).values()))
    once, doubled = (reported(replace(trace, operators=each)) for each in (trace.operators, twice))
    assert once.idle.covered_by == doubled.idle.covered_by


@pytest.mark.parametrize(
    ("name", "cause", "said"),
    [
        ("_compile.compile_inner (dynamo_timed)", "cpu", "torch.compile compiles anew"),
        ("dynamo_data: compile_id=0/1", "cpu", "torch.compile compiles anew"),
        ("Torch-Compiled Region: 0/0", "cpu", None),
        ("Optimizer.step#AdamW.step", "cpu", "the optimizer works on the host"),
        ("torch/serialization.py(944): save", "cpu", "files are written"),
        ("torch/utils/checkpoint.py(480): checkpoint", "cpu", None),  # of activations
        ("transformers/trainer.py(3): _save_checkpoint", "cpu", "files are written"),
        ("<built-in function collect>", "cpu", "garbage collection"),
        ("aten::nonzero", "synchronization", "it reads a value from the GPU"),
        ("aten::nonzero", "cpu", None),
        ("Thunk:#name=jit(f)debug_print,hlo_op=debug_print.1#", "cpu", CALLS_PYTHON),
        ("Thunk:#name=jit(f)/pure_callback,hlo_op=custom-call#", "synchronization", CALLS_PYTHON),
        ("_wrapped_callback", "cpu", CALLS_PYTHON),
        ("debug_printer", "cpu", None),
        ("aten::normal_", "cpu", "random numbers are drawn on the CPU"),
        ("aten::randn", "cpu", "random numbers are drawn on the CPU"),
        ("aten::random_", "cpu", None),  # a seed, or indices
    ],
)
def test_what_a_name_means(name, cause, said):
    work = work_named(name, cause)
    assert (work and work.said) == said
