"""Sections `profile` (what is captured of a run, and when) and `gpu_metrics` of configs.Config."""

import re
from dataclasses import dataclass

from cli.keys import key, spell

AUTO = "auto"
ALL = "all"


@dataclass
class ProfileConfig:
    """Keys of section `profile`; `profile=nsys` takes configs/profile/nsys.yaml."""

    kind: str = key(
        "none",
        "profile=KIND sets this key: nsys (cudaProfilerStart and Stop around the window), torch "
        "(torch.profiler), memory (CUDA memory snapshot)",
        ("none", "nsys", "torch", "memory"),
    )
    start: str = key(AUTO, "first iteration of the window; auto: when the step time is stable")
    steps: int = key(20, "iterations in a window", least=1)
    windows: int = key(1, "number of windows in the run", least=1)
    every: int = key(500, "iterations from the start of one window to the next", least=1)
    ranks: list[str] = key(["0"], "ranks to capture, such as [0,1], or all", (ALL,))
    detail: str = key(
        "phases",
        "layers: also ranges for blocks, attention and MLP; for eager runs",
        ("phases", "layers"),
    )
    attribute_backward: str = key(
        AUTO,
        "in the window, run backward on the calling thread so that its kernels belong to the "
        "range; auto: with nsys and with layers",
        (AUTO, "true", "false"),
    )
    warmup: int = key(3, "torch: warm-up iterations with the tracer on before the window", least=0)
    shapes: bool = key(False, "torch: record the operators' shapes")
    stack: bool = key(False, "torch, and nsys started by `run`: record Python stacks")
    memory: bool = key(False, "torch: record allocations")

    def __post_init__(self) -> None:
        if not re.fullmatch(rf"{AUTO}|\d{{1,18}}", self.start, re.ASCII):
            raise ValueError(
                f"profile.start={self.start}: must be auto or an iteration of at least 0"
            )
        if self.windows > 1 and self.every < self.steps:
            raise ValueError(
                f"profile.every={self.every}: the windows of {self.steps} iterations would "
                f"overlap; use {self.steps} or more"
            )
        numbers = [int(word) for word in self.ranks if word.isdecimal()]
        if self.ranks != [ALL] and not 0 < len(set(numbers)) == len(self.ranks):
            raise ValueError(
                f"profile.ranks={spell(self.ranks)}: must be all, or rank numbers of at least 0, "
                "each once"
            )

    def captured_ranks(self, world_size: int) -> list[int]:
        """Numbers of the ranks that are captured, in order."""
        return list(range(world_size)) if self.ranks == [ALL] else sorted(map(int, self.ranks))

    @property
    def shows_layers(self) -> bool:
        """Whether a window has a range for each layer; no layer may then be fused with others."""
        return self.kind != "none" and self.detail == "layers"

    @property
    def backward_on_calling_thread(self) -> bool:
        if self.attribute_backward == AUTO:
            return self.kind == "nsys" or self.detail == "layers"
        return self.attribute_backward == "true"

    @property
    def lead(self) -> int:
        """Number of iterations before a window in which the recorder is already on."""
        return self.warmup if self.kind == "torch" else 0

    def check_run(
        self, max_iters: int, eval_interval: int, compiled: bool, cuda_graphs: bool
    ) -> None:
        """Raise ValueError that names the key if no such window fits into such a run."""
        if self.kind == "none":
            return
        if self.detail == "layers" and self.attribute_backward == "false":
            raise ValueError(
                "profile.attribute_backward=false: profile.detail=layers needs backward on the "
                "calling thread; use profile.attribute_backward=auto"
            )
        if self.detail == "layers" and compiled:
            raise ValueError(
                "profile.detail=layers: torch.compile fuses layers, and a range inside would "
                "break its graph; leave compile at null"
            )
        if self.detail == "layers" and cuda_graphs:
            raise ValueError(
                "profile.detail=layers: a CUDA graph is launched as a whole, not layer by layer; "
                "add cuda_graphs=false"
            )
        if self.steps > eval_interval:
            raise ValueError(
                f"profile.steps={self.steps}: an evaluation, every eval_interval={eval_interval} "
                "iterations, would fall into the window; lower profile.steps or raise "
                "eval_interval"
            )
        self._check_fit(max_iters, eval_interval)

    def _check_fit(self, max_iters: int, eval_interval: int) -> None:
        start = 0 if self.start == AUTO else int(self.start)
        if start >= max_iters:
            raise ValueError(f"profile.start={self.start}: the run ends at max_iters={max_iters}")
        for number, window in enumerate(plan_windows(self, start, eval_interval), start=1):
            if window.first + self.steps > max_iters:
                key = f"windows={self.windows}" if number > 1 else f"start={self.start}"
                moved = ", moved to after an evaluation," if window.moved else ""
                raise ValueError(
                    f"profile.{key}: window {number}{moved} would be iterations {window.first} "
                    f"to {window.first + self.steps - 1}, but the run ends at "
                    f"max_iters={max_iters}"
                )

    def check_machine(self, device_type: str, world_size: int) -> None:
        """Raise ValueError that names the key if this machine or these ranks do not allow it."""
        if self.kind == "none":
            return
        if self.kind in ("nsys", "memory") and device_type != "cuda":
            raise ValueError(
                f"profile={self.kind}: needs a CUDA GPU, but this run is on {device_type}; use "
                "profile=torch"
            )
        if self.captured_ranks(world_size)[-1] >= world_size:
            have = "has only rank 0" if world_size == 1 else f"has ranks 0 to {world_size - 1}"
            raise ValueError(f"profile.ranks={spell(self.ranks)}: this run {have}")


@dataclass
class GpuMetricsConfig:
    """Section `gpu_metrics`: sampling of the GPUs' driver while training runs."""

    enabled: str = key(
        AUTO,
        "sample power, energy, clocks and activity of the run's GPUs; auto: if NVIDIA's driver "
        "reports them",
        (AUTO, "true", "false"),
    )
    interval_ms: int = key(
        100, "time between two samples; the driver updates its counters every 100 ms"
    )

    def __post_init__(self) -> None:
        if not 100 <= self.interval_ms <= 60_000:  # H200: activity reads 0 within 100 ms
            raise ValueError(
                f"gpu_metrics.interval_ms={self.interval_ms}: must be from 100 to 60000, because "
                "the driver updates its counters every 100 ms"
            )


@dataclass(frozen=True)
class PlannedWindow:
    """A window of iterations `first` to `first + steps - 1`; the user asked for it at `asked`."""

    asked: int
    first: int

    @property
    def moved(self) -> bool:
        return self.first != self.asked


def plan_windows(profile: ProfileConfig, start: int, eval_interval: int) -> list[PlannedWindow]:
    """Windows from `start` on, moved so that none holds an evaluation or overlaps another.

    The evaluation of an iteration comes before it.
    """
    windows: list[PlannedWindow] = []
    for number in range(profile.windows):
        asked = start + number * profile.every
        first = max(asked, windows[-1].first + profile.steps) if windows else asked
        evaluation = (first // eval_interval + 1) * eval_interval
        if first + profile.steps > evaluation:
            first = evaluation
        windows.append(PlannedWindow(asked, first))
    return windows
