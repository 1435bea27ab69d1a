"""Answer to what a step would take with a change, from a capture. Called by the verb whatif."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from configs.schema import role_of
from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import name_mask, union, used_names
from profiling.analysis.gpu_time.host_activity import (
    BATCH_BYTES,
    LONG_NS,
    data_ranges,
    loader_is_marked,
    waits_for_workers,
)
from profiling.analysis.gpu_time.losses import GRAPH_LAUNCH
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.steps.find import used_gpus
from profiling.analysis.verdict.health import WHOLE_GRAPHS, free_step_ms
from profiling.analysis.whatif.changes import (
    GRAPHS,
    NO,
    Change,
    named_times,
    pauses_ms,
    scaled,
    short_pauses,
    together,
    without_pauses,
    without_times,
)
from profiling.analysis.whatif.constants import (
    END_PERCENT,
    MOST_OVERLAPPING,
    MOST_PAUSES,
    PAUSE_NS,
    STEADY_PERCENT,
)
from profiling.analysis.whatif.cost import without_host
from profiling.analysis.whatif.prediction import Scene, loading_ns, predict
from profiling.analysis.whatif.replay import replayed_ends, steady_ms
from profiling.analysis.whatif.swap import Lab, swapped
from profiling.analysis.whatif.whatif_records import Gates, Prediction, WhatIf
from profiling.analysis.whatif.work import LAUNCHING, Work, work_of
from profiling.shared.manifest import Manifest
from profiling.shared.units import counted
from profiling.timeline.trace import GRAPH, Calls, Operations

DRIVER_LAUNCH = re.compile(r"cuLaunchKernel(Ex)?")
MOST_HELPFUL = 5  # changes in a report
MOST_IN_REPORT = 50_000  # operations; replaying so many takes a quarter of a second
SWAP = "--swap attention="
FEWEST_STEPS = 3  # the first and the last are not replayed
NO_DRIVER_WAITS = "the profiler records no wait by the driver's calls, with which it launches"
FREE_HOST = Change("", without_host)
# kind of capture -> causes that are not calls alone there: JAX allocates and empties buffers of
# copies in functions of its own
UNSEEN: dict[str, tuple[str, ...]] = {"jax": ("copies", "allocation")}


@dataclass(frozen=True)
class Asked:
    """The changes that are asked for; without any, all that the capture holds anything of."""

    no: tuple[str, ...] = ()  # of changes.NO
    graphs: bool = False
    scale: tuple[tuple[str, float], ...] = ()  # (family, factor)
    without: tuple[re.Pattern[str], ...] = ()
    attention: str | None = None  # another backend
    lab: Lab | None = None  # times of both
    together: bool = False
    free_ms: float | None = None

    @property
    def nothing(self) -> bool:
        return not (self.no or self.graphs or self.scale or self.without or self.attention)


def what_if(analysis: Analysis, manifest: Manifest | None, asked: Asked) -> WhatIf:
    """The predictions. Raises ValueError for a capture or a change of which none can be made."""
    window = work_of(analysis, *replayable(analysis, manifest))
    check_host(analysis, window)
    cycle = window.cycle()
    if not len(cycle.gpu.call):
        raise ValueError(f"{name_of(analysis)}: nothing ran on the GPU in the steps to be replayed")
    captured_ms = float(np.diff(analysis.bounds_ns)[1:-1].mean()) / 1e6
    known_ms = free_step_ms(manifest) if asked.free_ms is None else asked.free_ms
    of_manifest = asked.free_ms is None
    scene = Scene(
        cycle,
        known_ms,
        of_manifest,
        captured_ms if waits_for_workers(analysis.trace, analysis.steps) else None,
        shows_loading(analysis, window),
        guesses_loading=not loader_is_marked(analysis.trace, analysis.steps),
        shows_waits=shows_waits(analysis, window),
        shows_mapping=analysis.trace.kind != "kineto",  # which records no cuMemUnmap
    )
    if not min(captured_ms, *(scene.plain.step_ms(*world) for world in scene.worlds)) > 0:
        raise ValueError(f"{name_of(analysis)}: its steps take no time; it may be damaged")
    found = gates(window, cycle, captured_ms)
    changes = [*changes_of(analysis, cycle, asked)]
    if asked.attention:
        changes.append(swapped(analysis, manifest, cycle, asked.attention, asked.lab))
    if asked.together and len(changes) > 1:
        changes = [together(changes)]
    predictions = [predict(scene, change, command_of(change, manifest)) for change in changes]
    predictions = [
        doubted(each, change, scene, captured_ms)
        for each, change in zip(predictions, changes, strict=True)
    ]
    if asked.nothing:
        predictions = [each for each in predictions if each.answer != "nothing"]
    if not found.passed:
        predictions = [refuted(each, found) for each in predictions]
    return WhatIf(
        capture=name_of(analysis),
        captured_ms=captured_ms,
        steps=cycle.steps,
        operations=len(cycle.gpu.call),
        calls=len(cycle.host.kind),
        gates=found,
        free=scene.free,
        predictions=predictions,
    )


def what_would_help(analysis: Analysis, manifest: Manifest | None) -> WhatIf | None:
    """The changes that are predicted to help most, for a report, first those that say by how much.

    None where nothing can be replayed, or so much that a report would have to wait for it.
    """
    operations = analysis.trace.operations
    if operations is None or len(operations.name) > MOST_IN_REPORT:
        return None
    try:
        found = what_if(analysis, manifest, Asked())
    except ValueError:
        return None
    shorter = [each for each in found.predictions if each.answer == "shorter"]
    shorter.sort(key=lambda each: (not each.has_size, each.step_ms))
    return replace(found, predictions=shorter[:MOST_HELPFUL])


def name_of(analysis: Analysis) -> str:
    return analysis.trace.file.name


def replayable(analysis: Analysis, manifest: Manifest | None) -> tuple[Calls, Operations]:
    """The calls and the operations of a capture that can be replayed. Raises ValueError."""
    trace = analysis.trace
    if why := reason_against(analysis, manifest):
        raise ValueError(f"{name_of(analysis)}: {why}")
    assert trace.calls is not None and trace.operations is not None, "reason_against asks for both"
    return trace.calls, trace.operations


def reason_against(analysis: Analysis, manifest: Manifest | None) -> str | None:
    """Why the capture cannot be replayed, or None if it can."""
    trace, operations = analysis.trace, analysis.trace.operations
    if operations is None:
        return "it contains no GPU activity to replay"
    if len(used_gpus(trace)) > 1:
        return "it contains several GPUs or processes; for more GPUs: python -m profiling scale"
    steps = analysis.steps
    rows = steps.rows_of(operations)
    if trace.calls is None or not np.any(operations.call[rows] >= 0):
        return "no CUDA calls were recorded, so what the host did cannot be replayed"
    if 2 * np.count_nonzero(operations.call[rows] >= 0) <= len(rows):
        return "half of its operations or more have no recorded call, so it cannot be replayed"
    if (manifest and manifest.world_size > 1) or communicates(analysis, operations.name[rows]):
        return "it is of one of several ranks; for several GPUs: python -m profiling scale"
    if np.any(operations.kind[rows] == GRAPH):
        return f"{WHOLE_GRAPHS}; capture again: nsys profile --cuda-graph-trace=node"
    if analysis.losses and analysis.losses.allows_no_verdict:
        return f"{analysis.losses.sentence}; capture fewer steps"
    if steps.name is None:
        return "it contains no steps; put ranges around them, or name existing ones: --step NAME"
    if len(steps.start_ns) < FEWEST_STEPS:
        count = counted(len(steps.start_ns), "step")
        return f"it contains {count}; at least {FEWEST_STEPS} are needed, as two are left out"
    return None


def communicates(analysis: Analysis, name: np.ndarray) -> bool:
    return FAMILIES.index("communication") in analysis.family[used_names(name)]


def shows_loading(analysis: Analysis, window: Work) -> bool:
    """Whether the capture shows when batches are made: by ranges, long waits for other processes,
    or their copies to the GPU."""
    host, gpu = window.host, window.gpu
    return bool(
        len(data_ranges(analysis.trace, analysis.steps).start_ns)
        or (host.data_ns > LONG_NS).any()
        or (gpu.from_host & (gpu.bytes >= BATCH_BYTES)).any()
    )


def shows_waits(analysis: Analysis, window: Work) -> bool:
    """Whether the capture holds all calls that wait: PyTorch's profiler records those of the
    runtime, but not the driver's, with which a program outside of PyTorch's operators launches."""
    trace, host = analysis.trace, window.host
    if trace.kind != "kineto":
        return True
    by_driver = name_mask(trace.names, host.name, DRIVER_LAUNCH.fullmatch)
    if (operators := trace.operators) is not None:
        begin_ns = int(analysis.steps.start_ns[0])
        spans = (times.astype(np.int64) + begin_ns for times in (host.start_ns, host.end_ns))
        by_driver &= union(operators.start_ns, operators.end_ns).ns_within(*spans) == 0
    return bool(2 * np.count_nonzero(by_driver) <= np.count_nonzero(host.kind == LAUNCHING))


def check_host(analysis: Analysis, window: Work) -> None:
    """Raise ValueError where several threads drive the GPU at the same time."""
    overlapping = np.count_nonzero(window.host.think_ns < 0)
    if overlapping > MOST_OVERLAPPING * len(window.host.think_ns):
        raise ValueError(
            f"{name_of(analysis)}: several threads drive the GPU at the same time ({overlapping:,} "
            "calls begin inside a call of another one), and only threads that take turns can be "
            "replayed"
        )


def gates(window: Work, cycle: Work, captured_ms: float) -> Gates:
    """Differences between the unchanged replay and the capture, and whether the replay passes."""
    end_ns = float(window.gpu.end_ns.max())
    off_ns = abs(float(replayed_ends(window).max()) - end_ns)
    end_percent = 100 * off_ns / (end_ns - float(window.host.start_ns[0]))
    steady_percent = 100 * abs(steady_ms(cycle) / captured_ms - 1)
    is_steady = cycle.steps == 1 or steady_percent <= STEADY_PERCENT
    return Gates(end_percent, steady_percent, end_percent <= END_PERCENT and is_steady)


def refuted(prediction: Prediction, gates: Gates) -> Prediction:
    reason = (
        f"replayed unchanged, the capture ends {gates.end_percent:.1f} % off, and its steps are "
        f"{gates.steady_percent:.0f} % off"
    )
    return replace(prediction, answer="cannot tell", reason=reason)


def doubted(prediction: Prediction, change: Change, scene: Scene, step_ms: float) -> Prediction:
    """The prediction of the change, which cannot tell that it buys nothing where the host's time
    that may belong to what it takes away is so large a share of the captured step, and makes it
    longer."""
    if prediction.answer != "nothing":
        return prediction
    for unclear_ms, without, which, why in unclear_times(scene, change, step_ms):
        share = unclear_ms / step_ms
        if share < MOST_PAUSES:
            continue
        if predict(scene, together([change, without]), None).answer != "nothing":
            reason = f"{which} are {100 * share:.0f} % of the step, and {why}"
            return replace(prediction, answer="cannot tell", reason=reason)
    return prediction


def unclear_times(
    scene: Scene, change: Change, step_ms: float
) -> Iterator[tuple[float, Change, str, str]]:
    """Yield times of the host that the change leaves, though they may belong to what it takes away:
    their milliseconds per step, a change without them, which they are, why that is unclear."""
    cycle = scene.cycle
    pauses = Change("", without_pauses)
    stalls_ms, which = pauses_ms(cycle, cycle.host.is_stall), "pauses of the host"
    if "cpu" in change.causes:
        short = f"pauses of up to {PAUSE_NS / 1e6:.0f} ms"
        why = "may be the framework's own or the program's"
        yield pauses_ms(cycle, short_pauses(cycle)), pauses, short, why
        if scene.guesses_loading:
            batches_ms = loading_ns(cycle) / 1e6 / cycle.steps
            why = "may be other work of the program, as nothing but copies behind them shows them"
            yield batches_ms, NO["data"], "pauses in which batches are made", why
    elif "data" in change.causes and not scene.shows_loading:
        yield stalls_ms, pauses, which, "nothing shows whether batches are made in them"
    elif "sync" in change.causes and not scene.shows_waits:
        host_ms = step_ms - scene.plain.gpu_ms
        yield host_ms, FREE_HOST, "times at which the GPU waits for the host", NO_DRIVER_WAITS
    elif "allocation" in change.causes and not scene.shows_mapping:
        yield stalls_ms, pauses, which, "the profiler records no call that unmaps memory"


def changes_of(analysis: Analysis, cycle: Work, asked: Asked) -> Iterator[Change]:
    """Yield the changes that are asked for. Raises ValueError for one that cannot be made."""
    launches = graph_launches(cycle)
    unseen = UNSEEN.get(analysis.trace.kind, ())
    if asked.nothing:
        yield from (change for what, change in NO.items() if what not in unseen)
        if not launches:
            yield GRAPHS
        return
    if hidden := [what for what in asked.no if what in unseen]:
        raise ValueError(
            f"--no {hidden[0]}: {name_of(analysis)} does not show all of it as calls of CUDA; "
            "capture with nsys"
        )
    yield from (NO[what] for what in asked.no)
    if asked.graphs and launches:
        raise ValueError(
            f"--graphs: {name_of(analysis)} already runs in CUDA graphs: {cycle.names[launches[0]]}"
        )
    if asked.graphs:
        yield GRAPHS
    for family, factor in asked.scale:
        check_family(cycle, family)
        leaves = ("the launches of its kernels",)
        yield Change(f"--scale {family}={factor:g}", scaled(family, factor), leaves)
    for wanted in asked.without:
        if (times := named_times(analysis, wanted)) is None:
            raise ValueError(
                f"--without {wanted.pattern}: no operator or range in {name_of(analysis)} has a "
                "name that matches as a whole"
            )
        leaves = ("what uses its results",)
        words = f"--without {shlex.quote(wanted.pattern)}"
        yield Change(words, without_times(times), leaves)


def graph_launches(cycle: Work) -> list[int]:
    """The names of the calls that launch CUDA graphs in the cycle, as indices in its names."""
    name = cycle.host.name
    return used_names(name[name_mask(cycle.names, name, GRAPH_LAUNCH.fullmatch)])


def check_family(cycle: Work, family: str) -> None:
    """Raise ValueError for a family of which the cycle has no kernel."""
    held = [FAMILIES[row] for row in np.unique(cycle.gpu.family[cycle.gpu.family >= 0]).tolist()]
    if (cycle.gpu.to_host | cycle.gpu.from_host).any() and "copy" not in held:
        held.append("copy")
    if family not in held:
        raise ValueError(
            f"--scale {family}: the steps have no such kernels; they have {', '.join(held)}"
        )


def command_of(change: Change, manifest: Manifest | None) -> str | None:
    """The `ab` command that measures the change, or None where no key of a run makes it."""
    config = (manifest and manifest.config) or {}
    if command := config.get("command"):
        return f"ab --steps 200 -- {command} ::: THE SAME WITH THE CHANGE"
    swept = swept_key(change, dict(config))
    if manifest is None or swept is None:
        return None
    known = (manifest.environment or {}).get("command")
    words = [str(word) for word in known[1:]] if isinstance(known, list) else []
    kept = [word for word in words if is_of_step(word, swept.partition("=")[0])]
    return shlex.join(["ab", *kept, swept])


def swept_key(change: Change, config: dict[str, object]) -> str | None:
    """KEY=A,B of the trainer for the change, or None: as in the advice of shared.causes."""
    if change is GRAPHS and config.get("dtype") != "float16" and "cuda_graphs" in config:
        return "cuda_graphs=false,true"
    if change in (NO["data"], NO["copies"]) and config.get("token_storage") == "mmap":
        return "token_storage=mmap,device"
    if change.words.startswith(SWAP):
        return f"attention={config.get('attention')},{change.words.removeprefix(SWAP)}"
    return None


def is_of_step(word: str, swept: str) -> bool:
    """Whether a word of the run's command says what a step is: the file, or such a key."""
    key = word.partition("=")[0]
    return "=" not in word or (key != swept and role_of(key) in ("model", "text", "work", "speed"))
