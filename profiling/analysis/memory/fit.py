"""Says what would fit on a GPU: the largest batch, context and number of layers, and the peak after
usual changes.

Each answer has what it assumes, or why it cannot be told. Called by profiling.verbs.memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from msgspec import convert

from profiling.analysis.memory.changed import Bounds
from profiling.analysis.memory.device_memory import DeviceMemory
from profiling.analysis.memory.difference import has_peak
from profiling.analysis.memory.memory_records import Fit, Largest, MemoryReport, Plan, Predicted
from profiling.analysis.memory.program import KEYS, Program, program_of
from profiling.shared.memory_sizes import ROOM, fits
from profiling.shared.units import binary_bytes

RANKS = (2, 8)  # whose shares are predicted without being asked for
LARGEST_VALUE = 1 << 20
NO_MEMORY = "how much memory the GPU has is not known: give --gpu-memory 80GiB"


def fit_of(
    report: MemoryReport,
    memories: Sequence[DeviceMemory],
    batches: Sequence[int],
    contexts: Sequence[int],
    memory_bytes: int | None,
    plans: Sequence[Plan],
) -> Fit:
    """Find what would fit, by the snapshot of a report and one more of its program if there is one.

    `batches` and `contexts` are those of `memories`, or empty. Raises ValueError for numbers that
    do not belong to the snapshots, and for what is in a damaged manifest.
    """
    program = program_of_all(report, memories, batches, contexts)
    memory_bytes = memory_bytes or program.memory_bytes
    if not has_peak(report):
        why = "no whole step was recorded; record one, with a smaller batch if memory runs out"
        return Fit(f"What fits cannot be told: {why}", memory_bytes, [], [])
    if report.answer == "leak":
        why = "more stays with each step, so every size ends out of memory; end that first"
        return Fit(f"What fits cannot be told: {why}", memory_bytes, [], [])
    held = report.stranded_bytes if report.answer == "fragmented" else 0
    room = None if memory_bytes is None else int(ROOM * memory_bytes) - held
    largest = [largest_of(program, key, room) for key in KEYS]
    asked = [*plans, *usual(program)]
    rows = [predicted(program, plan, memory_bytes, held) for plan in dict.fromkeys(asked)]
    return Fit(sentence(largest, rows, memory_bytes), memory_bytes, largest, rows)


def program_of_all(
    report: MemoryReport,
    memories: Sequence[DeviceMemory],
    batches: Sequence[int],
    contexts: Sequence[int],
) -> Program:
    """The program of the report's snapshot, beside that of one with other values if there is one.

    Raises ValueError for numbers that do not belong to the snapshots.
    """
    given = {"--batch": batches, "--context": contexts}
    words = [f"{name} {','.join(map(str, values))}" for name, values in given.items() if values]
    if any(values and len(values) != len(memories) for values in given.values()):
        raise ValueError(f"{' '.join(words)}: give one number for each of the snapshots")
    found = [
        program_of(memory, batches[n] if batches else None, contexts[n] if contexts else None)
        for n, memory in enumerate(memories)
    ]
    own = found[next(n for n, memory in enumerate(memories) if is_of(memory, report))]
    values = own.batch, own.context
    other = next((each for each in found if (each.batch, each.context) != values), None)
    if words and len(found) > 1 and not other:
        raise ValueError(
            f"{' '.join(words)}: snapshots of equal values tell no more than one; give one, or two "
            "with other values"
        )
    return replace(own, other=other)


def is_of(memory: DeviceMemory, report: MemoryReport) -> bool:
    return (str(memory.snapshot.file), memory.history.device) == (report.file, report.device)


def usual(program: Program) -> Iterator[Plan]:
    """The changes that are predicted without being asked for."""
    for key in ("batch", "context"):
        if value := program.value(key):
            yield from (convert({key: value * times}, Plan) for times in (2, 4))
    yield Plan(checkpointing=True)
    yield Plan(moments=True)
    for ranks in RANKS:
        yield Plan(zero1=ranks)
        yield Plan(fsdp=ranks)


def predicted(program: Program, plan: Plan, memory_bytes: int | None, held: int) -> Predicted:
    """The peak after a plan. `held` are bytes that lie free between blocks, at most."""
    try:
        peak, assumes = program.predict(plan)
    except ValueError as error:
        return Predicted(plan.text, None, None, None, None, None, f"cannot tell: {error}")
    fit = fits(peak.least, peak.most + held, memory_bytes)
    sizes = peak.expected, peak.least, peak.most
    return Predicted(plan.text, *sizes, peak.phase, fit, "; ".join(assumes))


def largest_of(program: Program, key: str, room: int | None) -> Largest:
    """The largest value of a key with which the peak is no higher than `room`."""
    now = program.value(key)
    try:
        growth = program.growth(key)
    except ValueError as error:
        return Largest(key, now, None, None, None, f"cannot tell: {error}")
    if room is None:
        return Largest(key, now, None, None, None, f"cannot tell: {NO_MEMORY}")

    def peak(value: int) -> Bounds:
        return program.predict(convert({key: value}, Plan))[0]

    surely = last(lambda value: peak(value).most <= room)
    perhaps = last(lambda value: peak(value).least <= room)
    if surely == LARGEST_VALUE:
        return Largest(key, now, None, None, None, "nothing grows with it")
    expected = peak(surely).expected if surely else None
    return Largest(key, now, surely, perhaps, expected, growth.assumes)


def last(fitting: Callable[[int], bool]) -> int:
    """The last number from 1 on that fits, where those before it do; 0: none."""
    low, high = 0, 1
    while high < LARGEST_VALUE and fitting(high):
        low, high = high, 2 * high
    if high >= LARGEST_VALUE:
        return LARGEST_VALUE
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fitting(middle) else (low, middle)
    return low


def sentence(
    largest: Sequence[Largest], rows: Sequence[Predicted], memory_bytes: int | None
) -> str:
    """The answer for the batch, or else for the context, or else the lowest of the peaks."""
    known = [row for row in largest[:2] if row.fits is not None and row.may_fit is not None]
    if not known:
        why = largest[0].assumes.removeprefix("cannot tell: ")
        peaks = [(row.peak_bytes, row.change) for row in rows if row.peak_bytes is not None]
        if not peaks:
            return f"What fits cannot be told: {why}"
        lowest, change = min(peaks)
        told = f"The lowest of the predicted peaks is {binary_bytes(lowest)}, with {change}"
        return f"The largest batch cannot be told: {why}. {told}"
    row = known[0]
    beyond = f", {row.may_fit:,} perhaps" if row.may_fit != row.fits else ""
    begin = f"{row.key.capitalize()} {row.fits:,} fits" if row.fits else f"No {row.key} surely fits"
    peak = f" with a peak of {binary_bytes(row.peak_bytes)}" if row.fits else ""
    now = f"; {row.now:,} was recorded" if row.now else ""
    return f"{begin} into {binary_bytes(memory_bytes)}{peak}{beyond}{now}"
