"""Reads from a stack its part of a step, the line of the user's own code, and the module.

Backward runs in threads of autograd. A stack with C++ frames has those of its engine; without them
it is empty, or begins in a backward of Python.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from profiling.analysis.source.own_code import own_files
from profiling.timeline.memory_snapshot import Ints, Snapshot
from profiling.timeline.snapshot_pickle import Frame


class Role(IntEnum):
    """Part that the innermost telling frame of a stack plays."""

    NONE = 0  # no frame tells
    ABSENT = 1  # no stack was recorded
    WEIGHTS = 2  # making, moving or loading a module's parameters
    FORWARD = 3
    BACKWARD = 4
    OPTIMIZER = 5
    MOMENTS = 6  # the optimizer's state is made
    ZERO_GRAD = 7
    WORKSPACE = 8  # of cuBLAS, cuDNN or a kernel
    LIBRARY = 9  # of collectives
    BUCKETS = 10  # of gradients that ranks average


class Phase(IntEnum):
    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3


NAMES = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward", Phase.OPTIMIZER: "optimizer"}
# a module's forward or making; that of a container or a wrapper is no part of its own
NN_FOLDER = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\](?!module\.|container\.)")
OF_TORCH = re.compile(r"[/\\]torch[/\\](?!nn[/\\]modules[/\\])|torchinductor_|^<")
OF_FUNCTION = re.compile(r"[/\\]torch[/\\]autograd[/\\]function\.py$")
FORWARD, INIT = "forward", "__init__"
OF_MODULE = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]module\.py$")
OF_NN = re.compile(r"[/\\]torch[/\\]nn[/\\](?:modules[/\\]|functional\.py|attention)")
OF_AUTOGRAD = re.compile(r"[/\\]torch[/\\]autograd[/\\](?:__init__|graph)\.py$")
OF_CHECKPOINT = re.compile(r"[/\\]torch[/\\]utils[/\\]checkpoint\.py$")
OF_FSDP = re.compile(r"[/\\]torch[/\\]distributed[/\\](?:fsdp|_composable)[/\\]")
OF_DDP = re.compile(r"[/\\]torch[/\\]nn[/\\]parallel[/\\]distributed\.py$")
# PyTorch's optimizers, files that are named after theirs, and functions that name a step
OF_OPTIMIZER = re.compile(r"[/\\]torch[/\\]optim[/\\]|optim\w*\.py$", re.IGNORECASE)
NEAR_OPTIMIZER = re.compile(r"[/\\]optim\w*[/\\][^/\\]+\.py$", re.IGNORECASE)
STEPS = re.compile(r"step|update|foreach|fused")
# Module.to and its like; inside _apply the innermost is the function that converts one tensor
MOVES = {"_apply", "to", "cuda", "half", "bfloat16", "float", "to_empty", "type"}
MOVES |= {"convert", "<lambda>"}
LOADS = {
    "load_state_dict",
    "_load_from_state_dict",
    "from_pretrained",
    "_load_state_dict_into_meta_model",
    "reset_parameters",
}
NOT_A_STEP = {"zero_grad", "__init__", "forward", "add_param_group", "<module>", "main"}
STATE = {"_init_group", "init_state", "_init_state", "make_state", "load_state_dict"}
ENGINE = re.compile(
    r"torch::autograd::(?:Engine::|generated::\w+Backward|AccumulateGrad|python::PythonEngine)"
)
WORKSPACES = re.compile(
    r"getNewWorkspace|getCurrentCUDABlasHandle|BlasLtWorkspace|getCUDABlasLtWorkspace|"
    r"allocate_workspace|allocateWorkspace|run_conv_plan|CuDNN\w*Workspace|scratch_alloc"
)
COLLECTIVES = re.compile(r"ProcessGroupNCCL|\bnccl[A-Z]\w+|c10d::symmetric_memory")
REDUCER = re.compile(r"c10d::Reducer")


@dataclass(frozen=True)
class Module:
    """A module as frames tell it: its forward, or its making, and the line that called it."""

    frame: Frame | None  # of a class outside of torch.nn; None: none was around
    inner: Frame | None  # of a class of torch.nn inside it
    caller: Frame | None  # innermost line around these that is not of torch


@dataclass(frozen=True)
class Stacks:
    """Role, phase, line and module of each stack, by its number. The last row is for no stack."""

    role: Ints
    phase: Ints
    line: Ints  # number in `lines`; -1: no frame of Python
    lines: list[tuple[str, int, str, bool]]  # file, line, function, whether it is the user's own
    module: Ints  # number in `modules`; -1: no frame is of a module
    modules: list[Module]
    has_cpp: bool


def read_stacks(snapshot: Snapshot) -> Stacks:
    frames = snapshot.frames
    is_own = own_files({file for file, _, _ in frames})
    own = [is_python(frame) and is_own(frame[0]) for frame in frames]
    roles = [role_of(frame) for frame in frames]
    lines: dict[tuple[str, int, str, bool], int] = {}
    modules, rows = ModulesOfStacks(frames), []
    for stack in snapshot.stacks:
        role = next((roles[n] for n in stack if roles[n]), Role.NONE)
        phase = phase_of(role, [roles[n] for n in stack], [frames[n] for n in stack])
        of_python = [n for n in stack if is_python(frames[n])]
        number = next((n for n in of_python if own[n]), next(iter(of_python), None))
        line = -1
        if number is not None:
            line = lines.setdefault((*frames[number], own[number]), len(lines))
        rows.append((role, phase, line, modules.number(of_python)))
    has_cpp = any("::" in name for _, _, name in frames)
    empty = (Role.ABSENT, Phase.OTHER, -1, -1)
    table = np.array([*rows, empty], np.int64)
    without = np.array([len(stack) == 0 for stack in snapshot.stacks] + [False])
    if not has_cpp and len(frames):  # threads of autograd have no frame of Python
        table[without] = (Role.BACKWARD, Phase.BACKWARD, -1, -1)
    else:
        table[without] = empty
    role, phase, line, module = table.T
    return Stacks(role, phase, line, list(lines), module, list(modules.found), has_cpp)


class ModulesOfStacks:
    """Finds the module of each stack, and numbers the modules."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames
        self.tells = [frame[2] in (FORWARD, INIT) and is_python(frame) for frame in frames]
        self.of_nn = [bool(NN_FOLDER.search(file)) for file, _, _ in frames]
        self.of_torch = [bool(OF_TORCH.search(file)) for file, _, _ in frames]
        in_nn = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]")
        self.is_line = [
            not torch and not in_nn.search(frame[0])
            for frame, torch in zip(frames, self.of_torch, strict=True)
        ]
        self.found: dict[Module, int] = {}

    def number(self, stack: Sequence[int]) -> int:
        """The number of the module of a stack of Python, the innermost frame first; or -1."""
        inner: Frame | None = None
        for place, n in enumerate(stack):
            if not self.tells[n]:
                continue
            if self.of_nn[n]:
                inner = inner or self.frames[n]
            elif self.is_module(stack, place, inner):
                return self.kept(Module(self.frames[n], inner, self.line_of(stack[place + 1 :])))
        return self.kept(Module(None, inner, self.line_of(stack))) if inner else -1

    def is_module(self, stack: Sequence[int], place: int, inner: Frame | None) -> bool:
        """Whether the frame is of a module outside of torch.nn, and not of a Function of autograd.

        What makes modules of torch.nn is taken for one.
        """
        if self.of_torch[stack[place]]:
            return False
        if self.frames[stack[place]][2] == INIT:
            return inner is not None and inner[2] == INIT
        around = stack[place + 1 : place + 2]
        return not any(OF_FUNCTION.search(self.frames[n][0]) for n in around)

    def line_of(self, stack: Sequence[int]) -> Frame | None:
        """The innermost frame that is not of torch, or None."""
        return next((self.frames[n] for n in stack if self.is_line[n]), None)

    def kept(self, module: Module) -> int:
        return self.found.setdefault(module, len(self.found))


def is_python(frame: Frame) -> bool:
    file, line, _ = frame
    return line > 0 and (file.endswith(".py") or file.startswith("<") or "ipykernel" in file)


def role_of(frame: Frame) -> Role:
    """The role of a frame alone; NONE for most."""
    file, line, name = frame
    if not line:
        return role_of_cpp(name)
    if name == "zero_grad":
        return Role.ZERO_GRAD
    if name == "backward" or (OF_AUTOGRAD.search(file) and name != "__init__"):
        return Role.BACKWARD
    near = NEAR_OPTIMIZER.search(file)
    if name not in NOT_A_STEP and (OF_OPTIMIZER.search(file) or (near and STEPS.search(name))):
        return Role.MOMENTS if name in STATE else Role.OPTIMIZER
    if OF_FSDP.search(file):
        if name == "allocate":  # for the collective that calls it, which tells
            return Role.NONE
        return Role.BUCKETS if "reduce" in name or "post_backward" in name else Role.WEIGHTS
    if OF_DDP.search(file) and "init" in name:
        return Role.BUCKETS
    if name in LOADS or (OF_MODULE.search(file) and name in MOVES):
        return Role.WEIGHTS
    if name == "forward" or OF_NN.search(file):
        return Role.WEIGHTS if name == "__init__" else Role.FORWARD
    return Role.NONE


def role_of_cpp(name: str) -> Role:
    if WORKSPACES.search(name):
        return Role.WORKSPACE
    if COLLECTIVES.search(name):
        return Role.LIBRARY
    if REDUCER.search(name):
        return Role.BUCKETS
    return Role.BACKWARD if ENGINE.search(name) else Role.NONE


def phase_of(role: Role, roles: list[Role], frames: list[Frame]) -> Phase:
    """The part of the step: of a forward that backward computes again, that is backward."""
    if role in (Role.WEIGHTS, Role.ZERO_GRAD):
        return Phase.OTHER
    recomputed = any(
        OF_CHECKPOINT.search(file) and name in ("unpack_hook", "backward", "recompute_fn")
        for file, _, name in frames
    )
    if Role.BACKWARD in roles or recomputed:
        return Phase.BACKWARD
    if Role.OPTIMIZER in roles or Role.MOMENTS in roles:
        return Phase.OPTIMIZER
    return Phase.FORWARD if Role.FORWARD in roles else Phase.OTHER
