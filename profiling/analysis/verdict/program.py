"""Read off a capture what kind of program it shows, and what the program does already.

Called by summary. Advice follows from these facts: verdict.advice.
"""

import re
from collections.abc import Callable

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import name_mask, used_names
from profiling.analysis.gpu_time.host_activity import BATCH_BYTES, FROM_HOST, copies
from profiling.analysis.gpu_time.host_waits import launches_block
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.records import Loader, Program
from profiling.analysis.steps.find import PROJECT_DOMAIN
from profiling.shared.advice import Framework
from profiling.shared.kernel_names import FLOAT64, LAYOUT, fused_attention
from profiling.timeline.trace import COPY, KERNEL

STEP = "iteration"  # the trainer's name for its steps
TOKEN = "token"  # a step of sample.py, which does not have the keys of training
PHASES = {"data", "forward", "backward", "optimizer"}  # the trainer's, in each step
# names of ranges, operators, functions and kernels, by framework; the first that occurs counts
FRAMEWORKS: tuple[tuple[Framework, re.Pattern[str]], ...] = (
    (
        "lightning",
        re.compile(
            r"\[(pl|Strategy|Callback|LightningModule|LightningDataModule)\].*|"
            r"(.*/)?(pytorch_lightning|lightning(_fabric)?)/.*\.py\(.*"
        ),
    ),
    ("huggingface", re.compile(r"(.*/)?transformers/trainer\w*\.py\(.*")),
    (
        "pytorch",
        re.compile(
            r"(void )?(aten::|at::native|at_cuda|c10::|torch::|pytorch_flash).*|ProfilerStep#\d+|"
            r"triton_(poi|red|per)_.*|Optimizer\.(step|zero_grad)#.*|"
            r"enumerate\(DataLoader\).*|autograd::.*|.*\bat::native::.*"
        ),
    ),
    (
        "jax",
        re.compile(
            r"TSL|(TSL:|Xla|XLA|Pjrt|PjRt|Jax|jit_|jit\().*|.*\bhlo_(op|module)=.*|"
            r"(loop|input|wrapped|gemm|triton_(gemm|softmax))_\w*(fusion|reduce|convert)\w*|"
            r"wrapped_\w+"
        ),
    ),
    ("cupy", re.compile(r"cupy\w*")),
)
BATCHED = re.compile(r"aten::(bmm|baddbmm)")
MIXING = re.compile(r"aten::(bmm|baddbmm|mm|addmm|_?softmax)")
SOFTMAX = re.compile(r"aten::_?softmax")
FUSED = re.compile(r"aten::_?scaled_dot_product\w*|aten::_?native_multi_head_attention")
# in evaluation aten::dropout is called, too, and does nothing
DROPOUT = re.compile(r"aten::(native_dropout|bernoulli_?|_fused_dropout)")
CHECKS = "aten::_is_any_true"  # what anomaly mode asks of each gradient
BACKWARD = re.compile(r"autograd::engine::evaluate_function.*")
LOADER = re.compile(r"enumerate\(DataLoader\)#_(Single|Multi)Process\w*")
FUSABLE = re.compile(r"Optimizer\.step#(Adam|AdamW|SGD|Adagrad)\.step")  # on a CPU
FUSED_OPTIMIZER = re.compile(r"Fused(Adam|Sgd|Adagrad)", re.I)
MATRIX, ATTENTION, SOFT, DROPPING, OPTIMIZER = (
    FAMILIES.index(name) for name in ("gemm", "attention", "softmax", "dropout", "optimizer")
)
BETWEEN = tuple(FAMILIES.index(name) for name in ("elementwise", "dropout", "copy"))
NEAR = 4  # kernels (scale, mask, dropout, a copy) between an attention's softmax and its products


def program_of(analysis: Analysis, own_run: bool | None) -> Program:
    """The facts about the program.

    `own_run` is what the manifest says: this project's trainer, or a program with the hook; None
    without a manifest.
    """
    names = used(analysis)
    launches = blocking_launches(analysis)
    backward, checks = (count(analysis, each) for each in (BACKWARD.fullmatch, CHECKS.__eq__))
    return Program(
        framework=framework_of(analysis, names, own_run),
        blocking_launches=launches,
        anomaly_mode=bool(backward) and 2 * checks >= backward,
        attention=has_attention(analysis, names),
        dropout=any(map(DROPOUT.fullmatch, names)) or ran(analysis, DROPPING),
        loader=loader_of(names),
        fused_optimizer=fused_optimizer(analysis, names),
        copies_ahead=copies_ahead(analysis),
        batch_bytes=batch_bytes(analysis),
        transpose_ms=kernel_ms(analysis, LAYOUT.search),
        float64_ms=kernel_ms(analysis, FLOAT64.search),
    )


def loader_of(names: list[str]) -> Loader | None:
    """Find where PyTorch's DataLoader makes its batches, or None where none was recorded."""
    matches = (LOADER.match(name) for name in names)
    kinds = {match[1] for match in matches if match}
    return "workers" if "Multi" in kinds else "in_process" if kinds else None


def used(analysis: Analysis) -> list[str]:
    """The names of the process's ranges, domains, operators, functions and kernels."""
    trace, process = analysis.trace, analysis.steps.process
    rows = set[int]()
    for table in (trace.ranges, trace.operators, trace.frames, trace.sampled):
        if table is not None:
            rows.update(used_names(table.name[table.process == process]))
    if trace.ranges is not None:
        rows.update(used_names(trace.ranges.domain[trace.ranges.domain >= 0]))
    if trace.operations is not None:
        mine = analysis.steps.rows_of(trace.operations)
        rows.update(used_names(trace.operations.name[mine]))
    return [trace.names[row] for row in sorted(rows)]


def framework_of(analysis: Analysis, names: list[str], own_run: bool | None) -> Framework:
    trainer = is_of_trainer(analysis) if own_run is None else own_run
    if trainer and analysis.steps.name != TOKEN:
        return "trainer"
    found = (which for which, pattern in FRAMEWORKS if any(map(pattern.fullmatch, names)))
    hooked = own_run is False  # the hook saw steps of PyTorch
    return next(found, "pytorch" if hooked or analysis.trace.kind == "kineto" else "unknown")


def is_of_trainer(analysis: Analysis) -> bool:
    """Whether this project's trainer made the steps: their domain says it, or all their phases."""
    steps, ranges, names = analysis.steps, analysis.trace.ranges, analysis.trace.names
    if ranges is None or steps.name != STEP:
        return False
    phases = {names[row] for row in used_names(steps.phases.name)}
    domains = {names[row] for row in used_names(ranges.domain[ranges.domain >= 0])}
    return PROJECT_DOMAIN in domains or (analysis.trace.kind == "kineto" and phases >= PHASES)


def blocking_launches(analysis: Analysis) -> float | None:
    """Median time of a launch in us if all launches return behind their kernels, else None."""
    owned, operations, calls = analysis.owned, analysis.trace.operations, analysis.trace.calls
    if owned is None or operations is None or calls is None:
        return None
    if not launches_block(operations, calls, owned.row):
        return None
    launches = np.unique(owned.call[(owned.kind == KERNEL) & (owned.call >= 0)])
    return float(np.median(calls.end_ns[launches] - calls.start_ns[launches])) / 1e3


def count(analysis: Analysis, wanted: Callable[[str], object]) -> int:
    """Number of the process's operators in the window with a wanted name."""
    table = analysis.trace.operators
    if table is None:
        return 0
    inside = (table.start_ns >= analysis.begin_ns) & (table.start_ns < analysis.end_ns)
    inside &= table.process == analysis.steps.process
    return int(np.count_nonzero(inside & name_mask(analysis.trace.names, table.name, wanted)))


def has_attention(analysis: Analysis, names: list[str]) -> bool:
    """Whether attention ran: fused, or a softmax between two batched products.

    Without operators kernels tell: a softmax with products close before and behind it.
    """
    if fused_attention(names) or any(map(FUSED.fullmatch, names)) or ran(analysis, ATTENTION):
        return True
    table = analysis.trace.operators
    if (
        table is not None
        and (mixing := name_mask(analysis.trace.names, table.name, MIXING.fullmatch)).any()
    ):
        rows = table.name[mixing]
        batched = name_mask(analysis.trace.names, rows, BATCHED.fullmatch)
        soft = name_mask(analysis.trace.names, rows, SOFTMAX.fullmatch)
        first = soft & ~np.append(False, soft[:-1])  # aten::softmax, and aten::_softmax inside it
        last = soft & ~np.append(soft[1:], False)
        before = np.append(False, batched[:-1])[first]
        behind = np.append(batched[1:], False)[last]
        return bool(np.any(before & behind))
    return softmax_between_products(analysis)


def softmax_between_products(analysis: Analysis) -> bool:
    owned = analysis.owned
    if owned is None:
        return False
    family = analysis.family[owned.name[owned.kind == KERNEL]]
    others = np.flatnonzero(~np.isin(family, BETWEEN))
    soft = np.flatnonzero(family[others] == SOFT)
    soft = soft[(soft > 0) & (soft < len(others) - 1)]
    near = np.ones(len(soft), bool)
    for side in (soft - 1, soft + 1):
        near &= family[others[side]] == MATRIX
        near &= abs(others[side] - others[soft]) <= NEAR + 1
    return bool(near.any())


def ran(analysis: Analysis, family: int) -> bool:
    """Whether kernels of the family ran in the steps."""
    owned = analysis.owned
    return owned is not None and bool(np.any(analysis.family[owned.name] == family))


def fused_optimizer(analysis: Analysis, names: list[str]) -> bool | None:
    """Whether PyTorch's fused optimizer ran, or None where no optimizer that has one did."""
    if analysis.owned is None and any(map(FUSABLE.fullmatch, names)):  # without a GPU
        return any(name.startswith("aten::_fused_") for name in names)
    if not ran(analysis, OPTIMIZER) or analysis.owned is None:
        return None
    return bool(name_mask(analysis.trace.names, analysis.owned.name, FUSED_OPTIMIZER.search).any())


def copies_ahead(analysis: Analysis) -> bool:
    """Whether all batches are copied to the GPU on streams on which no kernel runs."""
    owned = analysis.owned
    if owned is None:
        return False
    stream = owned.operations.stream[owned.row]
    batch = copies_of_batches(analysis)
    computing = np.unique(stream[owned.kind == KERNEL])
    return bool(batch.any() and not np.isin(stream[batch], computing).any())


def copies_of_batches(analysis: Analysis) -> np.ndarray:
    """(operations of the steps,) mask of the larger copies to the GPU."""
    owned = analysis.owned
    if owned is None:
        return np.zeros(0, bool)
    large: np.ndarray = owned.operations.bytes[owned.row] >= BATCH_BYTES
    return large & copies(analysis.trace.names, owned.operations, owned.row, FROM_HOST)


def batch_bytes(analysis: Analysis) -> float | None:
    """Bytes that a step copies to the GPU, or None where no GPU activity was captured."""
    owned = analysis.owned
    if owned is None:
        return None
    brought = (owned.kind == COPY) & copies(
        analysis.trace.names, owned.operations, owned.row, FROM_HOST
    )
    return int(owned.operations.bytes[owned.row[brought]].clip(0).sum()) / analysis.step_count


def kernel_ms(analysis: Analysis, wanted: Callable[[str], object]) -> float | None:
    """Kernel time per step with a wanted name, or None where no GPU activity was captured."""
    owned = analysis.owned
    if owned is None:
        return None
    mine = (owned.kind == KERNEL) & name_mask(analysis.trace.names, owned.name, wanted)
    return int(owned.duration_ns[mine].sum()) / 1e6 / analysis.step_count
