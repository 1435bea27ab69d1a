"""Say what the threads that drive the device did in the steps. Called by idle, which splits the
gaps by it.

The data phase is a range of that name, or PyTorch's own around a DataLoader.

Launches that all return only after their kernels (CUDA_LAUNCH_BLOCKING) are calls that wait. JAX
waits without any call of CUDA: its threads report results by a futex. Such a wait, or a fetch of an
array in JAX's own trace, counts if a copy to the host lies in it; block_until_ready always does.
A fetch of more than 64 KiB is staged as a whole: memory is found for it before the copy begins.
Such a wait ends a pause between calls, as a call of CUDA that waits does. So does JAX's dispatch of
a jitted function, which may take longer than LONG_NS under its own profiler, but neither where it
compiles nor where it calls the program's Python for long.

A copy from the GPU to pageable memory waits as a synchronising call does, and so does one to the
GPU in the data phase. Larger ones are staged: CUDA's API synchronization behavior has the driver
wait for the stream and move the bytes. Up to 64 KiB, a copy to the GPU delays nobody (CUDA C++
Programming Guide, asynchronous concurrent execution), and a copy back takes no more than a latency,
as in `.item()`.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.columns import Intervals, distinct, is_one_of, name_mask, union
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_time.host_waits import launches_block
from profiling.analysis.gpu_time.pool_releases import release_begins_ns
from profiling.analysis.gpu_time.reported_waits import reported
from profiling.analysis.steps.operators import loading_times
from profiling.analysis.steps.steps import Steps
from profiling.shared.host_work import (
    DRAWS_NUMBERS,
    FOREIGN_WAITS,
    JAX_CALLBACKS,
    JAX_DISPATCHES,
    JAX_WAITS,
    XLA_ALLOCATES,
    XLA_COMPILES,
)
from profiling.timeline.trace import COPY, Calls, Operations, Ranges, Trace

LONG_NS = 200_000  # a long time without a CUDA call; a launch and its dispatch take 5 to 50 us
CALLBACK_NS = 1_000_000  # JAX's own work around a callback takes 0.4 to 0.6 ms under its profiler
BLOCKING = re.compile(
    r"((cuda|hip)(Stream|Device|Event|Thread)Synchronize|cu(Stream|Ctx|Event)Synchronize|"
    r"(cuda|hip)Memcpy(2D|WithStream)?|(cu|hip)Memcpy(DtoH|HtoD|DtoD)?)(_ptsz|_ptds|_spt)?(_v\d+)?|"
    r"synchronize(Stream|Device|Event)?"  # MTIA's calls
)
ALLOCATING = re.compile(
    r"((cuda|hip)(Ext)?(Malloc|Free)(Host|Array|Pitch|Managed|WithFlags)?|"
    r"((cuda|hip)Host|cuMemHost)(Alloc|Malloc|Free|Register|Unregister)|"
    r"cuMem(Alloc|Free)(Host|Pitch|Managed)?|(cu|hip)Mem(Create|Map|Unmap|Release|SetAccess|"
    r"AddressReserve|AddressFree)|"
    # of a pool, which asks the driver where it has given its memory back
    r"(cuda|hip)(Malloc(FromPool)?|Free)Async|cuMem(Alloc(FromPool)?|Free)Async|"
    r"(cuda|cu|hip)MemPoolTrimTo)(_ptsz)?(_v\d+)?"
)
TO_HOST, FROM_HOST = "Device-to-Host", "Host-to-Device"  # in the name of a copy
BATCH_BYTES = 4096  # smaller copies are scalars
NUMBERS_BYTES = 64  # a loss or a few metrics: the host makes no input of them
FETCHES = 4  # per step, each answered by a copy to the GPU: a batch comes once, or a few times
PIECES = 4  # pauses of the host among the copies of one batch; more of them make weights
STAGED_BYTES = 65536  # larger copies of pageable memory go through a buffer of the driver's
PACED_NS = 2_000_000  # of a step: to take a ready batch from workers needs less
BY_WORKERS = re.compile(r"enumerate\(DataLoader\)#_MultiProcessingDataLoaderIter.*")
DATA_PHASES = ("data", "dataloader", "data_loading", "get_batch", "load", "batch")
# the system's calls that pause at the program's request, and those that put files on the disk
SLEEPS = re.compile(r"(clock_)?nanosleep|u?sleep")
JAX_FETCHES = re.compile(r"np\.asarray\(jax\.Array\)")
THREAD_WAITS = re.compile(r"futex")  # JAX's threads report results by it
UNSEEN_WAITS = re.compile(
    "|".join(each.pattern for each in (JAX_FETCHES, THREAD_WAITS, JAX_WAITS))
)  # by CUDA
WRITES = re.compile(r"p?write(v|64)?|f(data)?sync|sync(fs)?|msync|fwrite|fflush")
SHORT_WRITE_NS = 100_000  # shorter writes wake another thread or process
# what a late host did (fields of Host, and `launching` for the rest) -> the cause of that part of
# the gap, unless a wait is charged with it
LATE = {
    "data_stalls": "data",
    "sleeps": "cpu",
    "stalls": "cpu",
    "data": "data",
    "launching": "launch",
}
NOTHING = union(np.empty(0), np.empty(0))


@dataclass(frozen=True)
class Host:
    """Activity of the threads that drive the device, as sets of intervals in the steps."""

    data: Intervals  # in the data phase
    staging: Intervals  # in large copies from or to pageable memory, outside the data phase
    allocations: Intervals  # in calls that allocate or free memory, or in waits that give it back
    data_waits: Intervals  # in the data phase: waiting for the GPU, or copying pageable memory
    other_waits: Intervals  # in calls that wait for the GPU, outside the data phase
    data_stalls: Intervals  # long without a call: in the data phase, or waiting for a process
    other_work: Intervals  # known to make no batch: files are written, XLA compiles, programs run
    draws: Intervals  # in PyTorch's operators that draw numbers, which make no batch either
    sleeps: Intervals  # long without a call: in a pause, or a program, that the program asked for
    stalls: Intervals  # long without a call, or copying from pageable memory
    quiet: Intervals  # long without a call


def copies(
    names: list[str], operations: Operations, rows: np.ndarray, direction: str
) -> NDArray[np.bool_]:
    """Mask of the `rows` that are copies in that direction; False where the row is -1."""
    return (rows >= 0) & name_mask(names, operations.name[rows], lambda name: direction in name)


def in_large_runs(chosen: NDArray[np.bool_], bytes_: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The mask of copies, less those of runs with fewer than BATCH_BYTES.

    Copies with no other operation between them are a run: labels, say, with their images.
    """
    run = np.cumsum(~chosen)
    run_bytes = np.bincount(run[chosen], bytes_[chosen], len(run) + 1)
    large: NDArray[np.bool_] = chosen & (run_bytes[run] >= BATCH_BYTES)
    return large


def piece_by_piece(
    chosen: NDArray[np.bool_],
    bytes_: NDArray[np.int64],
    before: NDArray[np.intp],
    after: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """The mask of copies in runs whose copies differ in size and have more than PIECES pauses of
    the host among them: weights are made so one by one, and samples are as large as each other.

    `before` and `after` are the operations around each pause.
    """
    run = np.cumsum(~chosen)
    inside = chosen[before] & chosen[after] & (run[before] == run[after])
    pauses = np.bincount(run[before[inside]], minlength=len(run) + 1)
    large = chosen & (bytes_ >= BATCH_BYTES)
    least, most = np.full(len(pauses), np.iinfo(np.int64).max), np.zeros(len(pauses), np.int64)
    np.minimum.at(least, run[large], bytes_[large])
    np.maximum.at(most, run[large], bytes_[large])
    pieces: NDArray[np.bool_] = chosen & ((pauses > PIECES) & (most > least))[run]
    return pieces


def large_results(to_host: NDArray[np.bool_], bytes_: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The mask of copies to the host that bring as much as a batch, less numbers among them."""
    return in_large_runs(to_host & (bytes_ > NUMBERS_BYTES), bytes_)


def where_often(answers: NDArray[np.bool_], steps: int) -> NDArray[np.bool_]:
    """The mask of small fetches that a copy to the GPU answers, or nothing where they are few.

    Many in each of the `steps` are the program's own work on results, and make no batch.
    """
    return answers & (np.count_nonzero(answers) >= FETCHES * steps)


def host_activity(trace: Trace, calls: Calls, owned: OwnedOperations, begin: int, end: int) -> Host:
    names, steps, operations = trace.names, owned.steps, owned.operations
    threads = set(distinct(owned.thread[owned.kernels_and_graphs]).tolist()) | {steps.thread}
    of_host = is_one_of(calls.thread, [thread for thread in threads if thread is not None])
    of_host &= (calls.end_ns > begin) & (calls.start_ns < end) & (calls.end_ns > calls.start_ns)
    start_ns, end_ns = calls.start_ns[of_host], calls.end_ns[of_host]
    busy = union(start_ns, end_ns, apart_ns=LONG_NS)  # shorter pauses are none
    busy = busy.union(dispatch_times(trace, steps, begin, end))

    pageable = np.flatnonzero((operations.kind == COPY) & operations.pageable)
    pageable = pageable[operations.call[pageable] >= 0]
    pageable = pageable[of_host[operations.call[pageable]]]
    to_host = copies(names, operations, pageable, TO_HOST)
    fetching, staging = operations.call[pageable[to_host]], operations.call[pageable[~to_host]]
    allocating = np.flatnonzero(of_host & name_mask(names, calls.name, ALLOCATING.fullmatch))
    waits = name_mask(names, calls.name, BLOCKING.fullmatch)
    if launches_block(operations, calls, owned.row):
        waits[owned.call[owned.kernels_and_graphs & (owned.call >= 0)]] = True
    waiting = np.flatnonzero(of_host & waits)

    def during(rows: np.ndarray) -> Intervals:
        return union(calls.start_ns[rows], calls.end_ns[rows]).clip(begin, end)

    unseen = unseen_waits(trace, steps, operations, owned.row)
    waited = during(np.union1d(waiting, fetching)).union(unseen)
    quiet = long_pauses(busy.union(unseen), begin, end)
    by_xla = times_named(trace, steps, XLA_ALLOCATES, trace.frames).clip(begin, end)
    asks = by_xla.end_ns - by_xla.start_ns > LONG_NS  # shorter: XLA has the memory
    by_xla = Intervals(by_xla.start_ns[asks], by_xla.end_ns[asks])
    released_ns = release_begins_ns(
        names, calls.name[of_host], start_ns, end_ns, owned.start_ns, owned.end_ns
    )
    released = union(released_ns, end_ns).clip(begin, end)
    staged = during(staging)
    home = owned.row[copies(names, operations, owned.row, TO_HOST)]
    large_home = home[operations.bytes[home] > STAGED_BYTES]
    moved = staging_times(operations, calls, pageable, to_host)
    by_thread = times_named(trace, steps, THREAD_WAITS, trace.os_calls)
    fetched = fetch_times(trace, steps, by_thread)
    moved = moved.union(fetches(fetched, operations, large_home))
    stalls = quiet.union(staged)

    data = data_ranges(trace, steps).clip(begin, end)
    foreign, for_programs = foreign_waits(trace, steps)
    elsewhere = data.gaps(begin, end)
    return Host(
        data,
        staging=moved.intersection(elsewhere, begin, end),
        allocations=during(allocating).union(by_xla).union(released),
        data_waits=waited.union(staged).intersection(data, begin, end),
        other_waits=waited.intersection(elsewhere, begin, end),
        data_stalls=stalls.intersection(data, begin, end).union(
            foreign.intersection(quiet, begin, end)
        ),
        other_work=other_work(trace, steps, for_programs).clip(begin, end),
        draws=drawing_times(trace, steps).clip(begin, end),
        sleeps=sleeps(trace, steps, for_programs).intersection(quiet, begin, end),
        stalls=stalls,
        quiet=quiet,
    )


def dispatch_times(trace: Trace, steps: Steps, begin: int, end: int) -> Intervals:
    """The times in [begin, end) in which JAX dispatches a jitted function.

    It neither compiles then nor calls the program's Python for long.
    """
    dispatches = times_named(trace, steps, JAX_DISPATCHES, trace.ranges, trace.frames)
    if not len(dispatches.start_ns):
        return dispatches
    others = times_named(trace, steps, XLA_COMPILES, trace.ranges, trace.frames)
    called = times_named(trace, steps, JAX_CALLBACKS, trace.frames)
    long = called.end_ns - called.start_ns > CALLBACK_NS
    others = others.union(Intervals(called.start_ns[long], called.end_ns[long]))
    return dispatches.intersection(others.gaps(begin, end), begin, end)


def unseen_waits(
    trace: Trace, steps: Steps, operations: Operations, rows: NDArray[np.intp]
) -> Intervals:
    """The times in which the steps' thread waits for the GPU outside of CUDA's calls, as JAX's.

    `rows` are the operations of the process on the GPU.
    """
    home = rows[copies(trace.names, operations, rows, TO_HOST)]
    by_thread = times_named(trace, steps, THREAD_WAITS, trace.os_calls)
    waits = times_named(trace, steps, JAX_WAITS, trace.frames)
    if trace.calls is not None and len(by_thread.start_ns):
        mine = trace.calls.rows(trace.calls.thread == steps.thread)
        busy = operations.start_ns[rows], operations.end_ns[rows]
        waits = waits.union(reported(trace.names, by_thread, mine, *busy))
    return fetches(fetch_times(trace, steps, by_thread), operations, home).union(waits)


def fetch_times(trace: Trace, steps: Steps, by_thread: Intervals) -> Intervals:
    """The times in which the steps' thread may wait for a result that another thread copies.

    `by_thread` are its waits for other threads.
    """
    return times_named(trace, steps, JAX_FETCHES, trace.frames).union(by_thread)


def staging_times(
    operations: Operations, calls: Calls, rows: np.ndarray, to_host: np.ndarray
) -> Intervals:
    """The times at which the host moved the bytes of the large copies among `rows`.

    The rows are copies from or to pageable memory. `to_host` is a mask of those to the host. Such a
    copy counts from its begin on the GPU: until then the host waits for the work before it.
    """
    call, large = operations.call[rows], operations.bytes[rows] > STAGED_BYTES
    begun_ns = np.where(to_host, operations.start_ns[rows], calls.start_ns[call])
    return union(begun_ns[large], calls.end_ns[call][large])


def long_pauses(busy: Intervals, begin: int, end: int) -> Intervals:
    """The parts of [begin, end) that are longer than LONG_NS and outside the `busy` times."""
    return busy.gaps(begin, end, LONG_NS)


def data_ranges(trace: Trace, steps: Steps) -> Intervals:
    """The times at which the steps' thread was in the data phase or in PyTorch's DataLoader."""
    phases = steps.phases.rows(steps.phase_mask(trace.names, DATA_PHASES))
    return union(phases.start_ns, phases.end_ns).union(loading_times(trace, steps))


def waits_for_answers(trace: Trace, steps: Steps) -> Intervals:
    """The times at which the steps' thread waits for other processes, such as a loader's workers.

    Waits for programs that the steps start are none of them.
    """
    return foreign_waits(trace, steps)[0]


def waits_for_workers(trace: Trace, steps: Steps) -> bool:
    """Whether other processes set the pace of the steps, which wait for their batches."""
    begin, end = int(steps.start_ns[0]), int(steps.end_ns[-1])
    waits = times_named(trace, steps, BY_WORKERS, trace.ranges)
    waits = waits.union(waits_for_answers(trace, steps)).clip(begin, end)
    return bool(waits.total_ns() > PACED_NS * len(steps.start_ns))


def foreign_waits(trace: Trace, steps: Steps) -> tuple[Intervals, Intervals]:
    """The waits of the steps' thread for (answers of other processes, programs that it started)."""
    waits = times_named(trace, steps, FOREIGN_WAITS, trace.os_calls)
    for_program = short_lives(trace, steps).ns_within(waits.start_ns, waits.end_ns) > 0
    answers, programs = (
        Intervals(waits.start_ns[chosen], waits.end_ns[chosen])
        for chosen in (~for_program, for_program)
    )
    return answers, programs


def short_lives(trace: Trace, steps: Steps) -> Intervals:
    """The times at which a program runs that the steps start.

    Its process begins and ends among the steps, within the mean time of one. nsys follows processes
    that start a program, and no forked ones, as workers of a loader are.
    """
    if trace.os_calls is None:
        return NOTHING
    calls = trace.os_calls.rows(trace.os_calls.process != steps.process)
    if not len(calls.start_ns):
        return NOTHING
    begin, end = int(steps.start_ns[0]), int(steps.end_ns[-1])
    processes, number = np.unique(calls.process, return_inverse=True)
    born_ns = np.full(len(processes), np.iinfo(np.int64).max)
    died_ns = np.zeros(len(processes), np.int64)
    np.minimum.at(born_ns, number, calls.start_ns)
    np.maximum.at(died_ns, number, calls.end_ns)
    short = (born_ns > begin) & (died_ns < end)
    short &= died_ns - born_ns < (end - begin) / len(steps.start_ns)
    return union(born_ns[short], died_ns[short])


def loader_is_marked(trace: Trace, steps: Steps) -> bool:
    """Whether ranges, or long waits for other processes, tell when batches were made."""
    waits = waits_for_answers(trace, steps)
    long = waits.end_ns - waits.start_ns > LONG_NS
    return bool(long.any() or len(data_ranges(trace, steps).start_ns))


def other_work(trace: Trace, steps: Steps, for_programs: Intervals) -> Intervals:
    """The times at which the steps' thread wrote files, had XLA compile, or waited `for_programs`
    that it started."""
    compiling = times_named(trace, steps, XLA_COMPILES, trace.ranges, trace.frames)
    return times_named(trace, steps, WRITES, trace.os_calls).union(compiling).union(for_programs)


def sleeps(trace: Trace, steps: Steps, for_programs: Intervals) -> Intervals:
    """The times at which the steps' thread paused, or waited `for_programs`, at its own request."""
    return times_named(trace, steps, SLEEPS, trace.os_calls).union(for_programs)


def is_other_work(
    other_ns: np.ndarray, answered_ns: np.ndarray, draws_ns: np.ndarray, quiet_ns: np.ndarray
) -> NDArray[np.bool_]:
    """Mask of the host's times that made no batch, whatever was copied behind them.

    That is so for the nanoseconds of other_work, but for short writes and for those to processes
    that answered longer (`answered_ns`), and where numbers were drawn in most of the quiet time.
    """
    other: NDArray[np.bool_] = other_ns >= np.maximum(SHORT_WRITE_NS, answered_ns)
    return other | (2 * draws_ns > quiet_ns)


def drawing_times(trace: Trace, steps: Steps) -> Intervals:
    """The times at which the steps' thread was in operators that draw numbers."""
    return times_named(trace, steps, DRAWS_NUMBERS, trace.operators)


def times_named(
    trace: Trace, steps: Steps, wanted: re.Pattern[str], *tables: Calls | Ranges | None
) -> Intervals:
    """The times at which the steps' thread was in an event of the tables that has such a name."""
    times = NOTHING
    for table in tables:
        if table is not None and len(table.start_ns):
            mask = table.thread == steps.thread
            mask &= name_mask(trace.names, table.name, wanted.fullmatch)
            times = times.union(union(table.start_ns[mask], table.end_ns[mask]))
    return times


def fetches(waits: Intervals, operations: Operations, rows: NDArray[np.intp]) -> Intervals:
    """Waits, outside of CUDA's calls, in which one of the copies lies; `rows` are the copies."""
    starts, ends = np.sort(operations.start_ns[rows]), np.sort(operations.end_ns[rows])
    ended = np.searchsorted(ends, waits.end_ns, side="right")
    fetching = ended > np.searchsorted(starts, waits.start_ns)
    return Intervals(waits.start_ns[fetching], waits.end_ns[fetching])
