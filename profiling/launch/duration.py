"""Estimates of how long processes will take, for a line before they start. Called by ab and bench.

An estimate is a rough range, from the least to the most, and is given with what it rests on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from profiling.launch.pace import Pace

LONG_S = 1800  # on a CPU a longer series is not what a newcomer meant
CPU_FILE = "config/shakespeare_char_cpu.yaml"
START_S = {"cpu": (2.5, 8.0), "cuda": (5.0, 20.0), "mps": (5.0, 20.0)}  # a process's start and end
COMPILE_ON_CPU_S = 5.0, 90.0  # added to the start: short only if the code is on disk already
SLOWER = 1.6  # factor on a CPU: other programs may use the cores
CAPTURED = 1.5  # factor: captured steps are longer, and the capture is written and read


@dataclass(frozen=True)
class Process:
    """A process that has not started yet."""

    pace: Pace
    iterations: float  # all its work, expressed in iterations of training
    captured: bool = False

    @property
    def start_s(self) -> tuple[float, float]:
        """Least and most seconds to start, to compile on a CPU, and to end."""
        low, high = START_S[self.pace.device]
        if self.pace.device == "cpu" and self.pace.compiles:
            return low + COMPILE_ON_CPU_S[0], high + COMPILE_ON_CPU_S[1]
        return low, high

    @property
    def work_s(self) -> tuple[float, float]:
        """Least and most seconds without the start; 0 for both if the pace is not known."""
        low, high = self.pace.iteration_s or (0.0, 0.0)
        slower = SLOWER if self.pace.device == "cpu" else 1.0
        factor = self.iterations * (CAPTURED if self.captured else 1.0)
        return factor * low, factor * high * slower


def total_s(processes: Sequence[Process]) -> tuple[float, float]:
    """Least and most seconds of all processes, which run one after the other."""
    parts = [times for process in processes for times in (process.start_s, process.work_s)]
    return sum(low for low, _ in parts), sum(high for _, high in parts)


def duration_line(processes: Sequence[Process], names: dict[str, Pace]) -> str:
    """A line saying how long the processes take. `names` maps names for the user to paces."""
    whole = f"it takes about {spell_range(*total_s(processes))}"
    starts = [process.start_s for process in processes]
    start = f"{min(low for low, _ in starts):.0f} to {max(high for _, high in starts):.0f} s"
    compiles = any(pace.compiles for pace in names.values())
    start = f"to start {start} each{', including compilation' * compiles}"
    pace = processes[0].pace
    if any(pace.iteration_s is None for pace in names.values()):
        return f"{whole}, plus the iterations, whose time on {pace.name} is not known ({start})"
    if pace.device == "cpu":
        timed = ", ".join(f"{name} {spell_iteration(pace)}" for name, pace in names.items())
        rests_on = f"time per iteration, measured just now: {timed}; {start}"
        return f"{whole} on this CPU, if nothing else runs on it ({rests_on})"
    most = max(pace.flops for pace in names.values())
    return f"{whole} on {pace.name} (an iteration has {most / 1e12:.3g} TFLOP; {start})"


def offer_line(processes: Sequence[Process], small: str, fewer: str) -> str | None:
    """A line offering a shorter series, or None unless the processes take long on a CPU.

    `small` is the verb with its words, with {file} for the configuration in the size for a CPU;
    `fewer` are flags for a user who has asked for that size already.
    """
    low_s, _ = total_s(processes)
    if low_s <= LONG_S or any(process.pace.device != "cpu" for process in processes):
        return None
    if all(process.pace.has_cpu_size for process in processes):
        return f"the model is already of a size for CPUs; for a shorter run use {fewer}"
    return (
        "for an answer in minutes, stop this (Ctrl-C) and use the size for CPUs: python -m "
        f"profiling {small.format(file=CPU_FILE)}"
    )


def spell_range(low_s: float, high_s: float) -> str:
    """Spell a range of seconds as 40 to 80 s, 0.8 to 2.5 min or 28 to 42 h, in the unit that suits
    the longer end."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if high_s >= 1.5 * size:
            low, high = low_s / size, high_s / size
            return f"{figure(low)} to {figure(high)} {unit}"
    return f"{low_s:.0f} to {high_s:.0f} s"


def figure(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def spell_iteration(pace: Pace) -> str:
    """Spell the usual time of an iteration, such as 28 ms or 4.1 s."""
    _, usual_s = pace.iteration_s or (0.0, 0.0)
    return f"{usual_s * 1e3:.0f} ms" if usual_s < 1 else f"{usual_s:.1f} s"
