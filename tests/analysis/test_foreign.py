"""Captures of other programs: without this project's ranges, manifests and habits."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.host_activity import NUMBERS_BYTES
from profiling.analysis.gpu_time.profiler_cost import LIKELY, recorded_overhead
from profiling.analysis.gpu_time.typical import are_typical, typical_step
from profiling.analysis.summary import summarize
from profiling.analysis.verdict.advice import advise
from profiling.shared.causes import VERDICT
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from profiling.timeline.trace import Calls, Ranges
from tests.helpers.programs import (
    AUTOGRAD,
    GEMM,
    MAIN,
    MS,
    PROCESS,
    US,
    Program,
    calls_table,
    columns,
)

ADAM = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>"
CLIP = "void at::native::multi_tensor_apply_kernel<LpNormFunctor>"


def trained(steps: int = 6, before=None, ranges: bool = False) -> Program:
    """A training loop that ranges nothing; `before` happens before each batch."""
    program = Program()
    for number in range(steps):
        begin = program.host
        if before:
            before(program, number)
        program.copy(64 * US)
        program.launch(100 * US, 40)
        program.launch(10 * US, 2, name=CLIP)
        program.launch(10 * US, 5)
        program.launch(30 * US, 4, name=ADAM)
        if ranges:
            program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    return program


def os_calls(trace, *rows) -> Calls:
    """(start, end, name) on the main thread."""
    found = [(start, end, trace.names.index(name), 7, MAIN) for start, end, name in rows]
    return calls_table(sorted(found))


def report_of(trace, **choice):
    return summarize(Analysis(trace, **choice))


def test_an_optimizers_kernels_end_the_steps():
    found = Analysis(trained().trace()).steps
    assert (found.name, len(found.start_ns)) == ("optimizer's kernels", 6)
    assert np.all(found.start_ns[1:] == found.end_ns[:-1])


def test_one_kernel_again_and_again_ends_no_optimizer():
    """AdamW with capturable=True has one for each parameter's step count between its parts."""
    program = Program()
    for _ in range(6):
        program.launch(100 * US, 40)
        program.launch(10 * US, 20, name=CLIP)
        for _ in range(2):
            program.launch(30 * US, 4, name=ADAM)
            program.launch(2 * US, 40, name="step_count")
        program.launch(30 * US, 4, name=ADAM)
    found = Analysis(program.trace()).steps
    assert (found.name, len(found.start_ns)) == ("optimizer's kernels", 6)


def test_ranges_of_libraries_are_no_steps():
    program = trained()
    for call in program.build.calls[::10]:
        program.build.range(call[0], call[1], "cub::DeviceReduce::Sum", domain="CCCL")
    assert Analysis(program.trace()).steps.name == "optimizer's kernels"


def stalled(program: Program, number: int) -> None:
    program.work(8 * MS)


def test_cpu_work_that_ends_with_a_batch_was_making_it():
    assert report_of(trained(before=stalled).trace()).bottleneck.verdict == "data"


@pytest.mark.parametrize(
    ("sizes", "cause"),
    [
        ((16384, 65536) * 4, "cpu"),
        ((65536,) * 8, "data"),  # samples of one size
        ((16384, 65536) * 2, "data"),  # the parts of a batch
        ((1024, 65536) * 4, "data"),  # samples with their labels
    ],
)
def test_weights_that_are_made_and_copied_one_by_one_are_no_batch(sizes, cause):
    """Adapters of a model are made on the host, each with a copy of its own."""

    def load(program, number):
        for size in sizes:
            program.work(1 * MS)
            program.copy(2 * US, size)

    program = Program()
    for number in range(6):
        load(program, number)
        program.launch(100 * US, 40)
        program.launch(30 * US, 4, name=ADAM)
    by_cause = report_of(program.trace()).idle.by_cause
    assert by_cause[cause] > len(sizes) / 2
    assert by_cause["data" if cause == "cpu" else "cpu"] < 0.1


def test_cpu_work_behind_a_batch_makes_the_next_one():
    """The loaders of accelerate and of the HF Trainer fetch ahead."""
    program = Program()
    for _ in range(6):
        program.copy(64 * US)
        program.work(8 * MS)
        program.launch(100 * US, 40)
        program.launch(30 * US, 4, name=ADAM)
    assert report_of(program.trace()).bottleneck.verdict == "data"


@pytest.mark.parametrize(("write_us", "verdict"), [(500, "cpu"), (2, "data")])
def test_cpu_work_that_writes_files_makes_no_batch(write_us, verdict):
    """A short write only wakes another thread."""
    written = []

    def log(program, number):
        stalled(program, number)
        written.append((program.host - write_us * US, program.host, "write"))

    program = trained(before=log)
    program.build.name("write")
    trace = program.trace()
    trace = replace(trace, os_calls=os_calls(trace, *written))
    assert report_of(trace).bottleneck.verdict == verdict


def test_what_is_written_to_a_loader_s_processes_is_no_file():
    exchanged = []

    def ask(program, number):
        for _ in range(100):
            begin = program.host
            program.work(80 * US)
            answered = (begin + 2 * US, begin + 20 * US, "read")
            exchanged.extend([(begin, begin + 2 * US, "write"), answered])

    program = trained(before=ask)
    for name in ("write", "read"):
        program.build.name(name)
    trace = program.trace()
    trace = replace(trace, os_calls=os_calls(trace, *exchanged))
    assert report_of(trace).bottleneck.verdict == "data"


@pytest.mark.parametrize(
    ("bytes", "times", "cause"), [(1024, 8, "cpu"), (1024, 1, "data"), (4, 8, "data")]
)
def test_small_results_that_are_answered_many_times_a_step_make_it_python(bytes, times, cause):
    """Text by a rule of the program's own reads each token; a loop may read each part's loss."""

    def answer(program, number):
        for _ in range(times):
            program.item(bytes)
            program.work(16 * MS // times)
            program.copy(64 * US)
            program.launch(10 * US, 5)

    by_cause = report_of(trained(before=answer).trace()).idle.by_cause
    assert by_cause[cause] > 10
    assert by_cause["data" if cause == "cpu" else "cpu"] < 0.1


def test_results_that_were_fetched_before_it_make_it_python():
    def fetch_and_work(program, number):
        program.item(1 << 20)
        program.work(8 * MS)

    found = report_of(trained(before=fetch_and_work).trace()).idle.by_cause
    assert found["data"] < 0.1 and found["cpu"] > 1


@pytest.mark.parametrize(
    ("last_bytes", "cause"), [(NUMBERS_BYTES + 1, "cpu"), (NUMBERS_BYTES, "data")]
)
def test_a_small_result_counts_with_those_fetched_right_before_it(last_bytes, cause):
    """Boxes are larger than a batch need be, their scores smaller; a loss is no result of it."""

    def fetch_and_work(program, number):
        program.item(1 << 20)
        program.item(last_bytes)
        program.work(8 * MS)

    by_cause = report_of(trained(before=fetch_and_work).trace()).idle.by_cause
    assert by_cause[cause] > 1
    assert by_cause["data" if cause == "cpu" else "cpu"] < 0.1


@pytest.mark.parametrize(("python_us", "verdict"), [(150, "synchronization"), (1000, "cpu")])
def test_a_wait_that_cuda_does_not_see_ends_a_pause(python_us, verdict):
    """JAX's threads copy the result, and the program's thread waits for them by a futex."""
    program, waited = Program(), []
    for number in range(30):
        program.launch(10 * US, 3)
        begun = program.host
        program.thread = AUTOGRAD
        program.work(80 * US)
        program.item()
        program.thread = MAIN
        waited.append((begun, program.host, "futex"))
        program.work(python_us * US)
        if number % 5 == 4:
            program.launch(30 * US, 4, name=ADAM)
    program.build.name("futex")
    trace = program.trace()
    trace = replace(trace, os_calls=os_calls(trace, *waited))
    assert report_of(trace).bottleneck.verdict == verdict


@pytest.mark.parametrize(("bytes", "cause"), [(1 << 24, "staging"), (4, "synchronization")])
def test_a_large_result_that_another_thread_fetches_is_staged_as_a_whole(bytes, cause):
    """JAX's threads copy it, and move it to pageable memory, while the program's waits."""
    program, waited = Program(), []
    for _ in range(8):
        program.launch(100 * US, 5)
        program.wait()
        begun = program.host
        program.thread = AUTOGRAD
        program.item(bytes)
        program.thread = MAIN
        program.host += 2 * MS
        waited.append((begun, program.host, "futex"))
        program.launch(30 * US, 4, name=ADAM)
    program.build.name("futex")
    trace = program.trace()
    found = report_of(replace(trace, os_calls=os_calls(trace, *waited)))
    assert found.idle.by_cause[cause] > 1.7
    assert found.bottleneck.verdict == ("copies" if cause == "staging" else cause)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("clock_nanosleep", "cpu"), ("poll", "data"), ("sem_clockwait", "data"), ("futex", "cpu")],
)
def test_the_system_tells_a_pause_from_a_wait_for_a_loader(name, verdict):
    """The stall ends with a kernel, so that the batch does not tell."""
    program, slept = Program(), []
    for _ in range(6):
        slept.append((program.host, program.host + 8 * MS, name))
        program.work(8 * MS)
        program.launch(100 * US, 40)
        program.launch(30 * US, 4, name=ADAM)
    program.build.name(name)
    trace = program.trace()
    trace = replace(trace, os_calls=os_calls(trace, *slept))
    assert report_of(trace).bottleneck.verdict == verdict


@pytest.mark.parametrize(("lives_for_a_step", "verdict"), [(True, "cpu"), (False, "data")])
def test_a_wait_for_a_program_that_the_step_starts_is_no_loading(lives_for_a_step, verdict):
    """A worker's process was there before, or was forked and is not followed."""
    program, calls = Program(), []
    poll, ioctl = program.build.name("poll"), program.build.name("ioctl")
    for number in range(6):
        begun, other = program.host, 100 + number if lives_for_a_step else 100
        calls.append((begun, begun + 8 * MS, poll, PROCESS, MAIN, False))
        calls.append((begun + 2 * MS, begun + 3 * MS, ioctl, other, 10 * other, False))
        calls.append((begun + 6 * MS, begun + 7 * MS, ioctl, other, 10 * other, False))
        program.work(8 * MS)
        program.copy(64 * US)
        program.launch(100 * US, 40)
        program.launch(30 * US, 4, name=ADAM)
    found = report_of(program.trace(os_calls=calls_table(calls)))
    assert found.bottleneck.verdict == verdict
    said = "inside poll: the program waits for another one that it started"
    assert any(said in line for line in found.bottleneck.evidence) == (verdict == "cpu")


def test_pytorchs_own_range_of_a_loader_is_the_data_phase():
    def loading(program, number):
        begin = program.host
        program.work(8 * MS)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        program.build.range(begin, program.host, name, domain=None)
        program.launch(1 * US)  # not a batch

    found = report_of(trained(before=loading, ranges=True).trace(kind="kineto"))
    assert found.bottleneck.verdict == "data"


def test_one_slow_step_does_not_decide():
    def first(program, number):
        if number == 0:
            program.call(400 * MS, "cudaStreamSynchronize")

    found = report_of(trained(12, before=first, ranges=True).trace())
    assert found.bottleneck.verdict == "gpu_compute"
    assert found.idle.by_cause["synchronization"] > 20  # the mean of all steps still has it
    assert ("One of the 12 steps was unusual and is left out") in " ".join(
        found.bottleneck.evidence
    )


def test_what_many_steps_do_is_typical():
    bounds = np.cumsum([0, 90, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]) * MS
    assert are_typical(np.diff(bounds)).tolist() == [False] + [True] * 10
    bounds = np.cumsum([0, 90, *[10, 30] * 5]) * MS
    assert are_typical(np.diff(bounds)).tolist() == [False] + [True] * 10
    assert are_typical(np.array([10, 80])).all()


def test_the_parts_of_the_typical_step_add_up():
    step = typical_step(Analysis(trained(before=stalled, ranges=True).trace()))
    assert step.ms == pytest.approx(sum(step.parts_ms.values()))


def test_what_capturing_costs_is_estimated_where_no_manifest_tells():
    """The host is a fifth of the step late, and 1,000 events a step account for most of it."""

    def body(program):
        program.dispatch_ns = 10 * US
        program.launch(10_900, 1000)

    program = Program()
    for number in range(6):
        begin = program.host
        body(program)
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    found = report_of(program.trace())
    assert found.health.recording_ms[LIKELY] == pytest.approx(2.05, rel=0.01)
    assert found.idle.by_cause["launch"] > 0.15 * found.window.step_ms.mean
    assert not VERDICT[found.bottleneck.verdict].waiting
    assert "Recording its events may explain 2.05 ms" in " ".join(found.bottleneck.evidence)


def test_overlapping_times_of_the_profiler_itself_count_once():
    trace = trained(ranges=True).trace()
    begin = int(trace.ranges.start_ns[0])
    held_up = [(begin, begin + 2 * MS), (begin + MS, begin + 3 * MS), (begin, begin + MS)]
    rows = [(start, end, True, 0, -1, 7, MAIN) for start, end in sorted(held_up)]
    held = replace(trace, overhead=Ranges(*columns(rows, 7)))
    assert recorded_overhead(held, [MAIN]).total_ns() == 3 * MS


def test_advice_to_another_program_speaks_pytorch():
    own_keys = ("=true", "attention=", "dtype=", "token_storage=", "batch_size", "log_interval")
    foreign = report_of(trained().trace())
    for verdict in VERDICT:
        lines = advise(verdict, foreign)
        assert lines and not [line for line in lines for key in own_keys if key in line.split()[-1]]
        assert not any(key in " ".join(lines) for key in ("compile=true", "dtype=", "batch_size"))


def test_of_several_gpus_one_is_taken_and_the_others_are_named():
    program = trained()
    program.build.device = 1
    program.build.operation(program.gpu, program.gpu + 5 * MS, GEMM)
    trace = program.trace()
    found = report_of(trace)
    (note,) = [each for each in found.health.findings if "GPUs in the capture" in each.what]
    assert "this report is about GPU 0 of process 7" in note.what and note.cure.endswith("--device")
    assert report_of(trace, device=1).capture.device == 1
    with pytest.raises(ValueError, match="process=8: .* contains GPU activity of \\[7\\]"):
        report_of(trace, process=8)


def test_copies_are_told_with_direction_memory_and_speed():
    def full_link(program, number):
        program.copy(20 * MS, bytes=1_100_000_000)

    found = report_of(trained(before=full_link).trace()).bottleneck
    assert found.verdict == "copies"
    told = " ".join(found.evidence)
    assert "copies to the GPU (pinned memory)" in told and "of the link's 63" in told


def test_kernels_of_equal_work_tell_by_how_much_a_step_varies():
    def noise_of(spread_ns: int) -> float:
        program = Program()
        for number in range(6):
            with program.step():
                for place in range(20):
                    program.launch(MS + (number % 2) * (place % 2) * spread_ns)
        return typical_step(Analysis(program.trace())).kernel_noise

    assert noise_of(0) == 0  # long and short ones, alike in all steps
    assert noise_of(MS // 10) > 0.01


def drawing(drawn_ms: int, name: str):
    """The report of a program without a loader: in each step the host works for 8 ms before a copy
    to the GPU, and draws numbers for a part of it."""

    def before(program: Program, number: int) -> None:
        program.work(1 * MS)
        program.build.operator(program.host, program.host + drawn_ms * MS, name)
        program.work(7 * MS)

    return report_of(trained(before=before, ranges=True).trace(kind="kineto"))


@pytest.mark.parametrize(
    ("drawn_ms", "name", "verdict"),
    [
        (6, "aten::normal_", "cpu"),
        (6, "aten::uniform_", "cpu"),
        (2, "aten::normal_", "data"),  # a loader of one's own may add some noise
        (6, "aten::multinomial", "data"),  # draws which samples come next
        (6, "aten::stack", "data"),
    ],
)
def test_noise_that_is_drawn_on_the_host_is_no_batch(drawn_ms, name, verdict):
    report = drawing(drawn_ms, name)
    assert report.bottleneck.verdict == verdict
    assert ("Draw random numbers on the GPU" in " ".join(report.bottleneck.next)) == (
        verdict == "cpu"
    )


def test_a_batch_that_nothing_marks_may_be_something_else():
    unmarked = report_of(trained(before=stalled).trace()).bottleneck
    marked = report_of(trained(before=stalled, ranges=True).trace(kind="kineto")).bottleneck
    assert unmarked.verdict == marked.verdict == "data"
    assert any(line.startswith("whether the host made batches") for line in unmarked.cannot_tell)


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("workers", [True, False])
def test_a_host_that_records_nothing_waits_longer_for_workers(workers, known):
    name = LOADER if workers else LOADER.replace("MultiProcessing", "SingleProcess")

    program = Program()
    for number in range(6):
        begin = program.host
        program.work(6 * MS)
        program.build.range(begin, program.host, name, domain=None)
        program.copy(1 * US)
        program.launch(1 * US, 400)
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    for start, end, *_ in program.build.calls:
        program.build.operator(start - 5 * US, end, "aten::add")
    analysis = Analysis(program.trace(kind="kineto"))
    mean_ms = float(np.diff(analysis.bounds_ns).mean()) / 1e6
    steps = WindowSteps(before=Laps(mean_ms, [mean_ms]))
    manifest = Manifest(1, "kineto", CapturedWindow(), steps, overhead_percent=0.0)
    report = summarize(analysis, manifest if known else None)
    for row in report.typical.added_ms:
        rest_ms = sum(ms for cause, ms in row.items() if cause != "data")
        assert rest_ms > 0 and (row["data"] == pytest.approx(-rest_ms)) == workers
    said = [line for line in report.bottleneck.evidence if "for the loader's workers" in line]
    (data,) = [gain for gain in report.bottleneck.ranked if gain.verdict == "data"]
    waited_ms = report.typical.parts_ms["data"]
    assert bool(said) == workers
    if workers:
        likely = report.typical.added_ms[LIKELY]
        assert data.recoverable_ms_per_step == pytest.approx(waited_ms - likely["data"])
    else:
        assert data.recoverable_ms_per_step <= waited_ms


@pytest.mark.parametrize(
    ("seed", "around", "launches", "cause"),
    [
        ("aten::random_", None, False, "data"),
        ("aten::random_", "aten::randint", False, "cpu"),  # the program's own
        ("aten::random_", None, True, "cpu"),  # the program worked in between
        ("aten::zero_", None, False, "cpu"),
    ],
)
def test_a_loader_that_starts_its_workers_is_loading(seed, around, launches, cause):
    """DataLoaders draw a seed, start their processes, here for 8 ms, and then make a batch."""

    def restart(program: Program, number: int) -> None:
        program.work(300 * US)
        begin = program.host
        program.build.operator(begin, begin + 50 * US, seed)
        if around:
            program.build.operator(begin - 1 * US, begin + 51 * US, around)
        program.work(100 * US)
        if launches:
            program.launch(1 * US)
        program.work(8 * MS)
        begin = program.host
        program.work(100 * US)
        program.build.range(begin, program.host, LOADER, domain=None)
        program.work(10 * US)

    report = report_of(trained(before=restart, ranges=True).trace(kind="kineto"))
    assert report.bottleneck.verdict == cause
    assert report.idle.by_cause[cause] > 4
