"""Lines of launches from the stacks that nsys recorded with some of them."""

import numpy as np

from profiling.analysis.gpu_time.launch_lines import BACKWARD_CALL, LAUNCH
from profiling.analysis.gpu_time.stack_lines import stack_lines
from profiling.timeline.trace import CallStacks
from tests.helpers.programs import Builder

MAIN, AUTOGRAD, OTHER = 1, 2, 3
FORWARD = ("model.py(71): forward", "train.py(9): <module>")
GRAPH = "site-packages/torch/autograd/graph.py(869): _engine_run_backward"
ROOT = "site-packages/torch/autograd/__init__.py(374): backward"
MAKE = "site-packages/torch/autograd/__init__.py(231): _make_grads"
HOOK = "_profiling_attach/patches.py(166): backward"
BEGIN = (MAKE, ROOT, HOOK, "train.py(12): step")
WITHIN = (GRAPH, ROOT, HOOK, "train.py(12): step")
STEP = ("site-packages/torch/optim/adam.py(880): _fused_adam", "train.py(14): step")


def lines(*launches: tuple[int, tuple[str, ...] | None]) -> list[tuple[str | None, int]]:
    """The frame and source of each launch, by its thread and the stack that nsys recorded."""
    program = Builder()
    for at, (thread, _) in enumerate(launches):
        program.launched(10 * at, 10 * at + 5, 10 * at + 9, thread=thread)
    stack, frames, of_call = [], [], []
    for _, recorded in launches:
        of_call.append(-1 if recorded is None else max(of_call, default=-1) + 1)
        for frame in recorded or ():
            stack.append(of_call[-1])
            frames.append(program.name(frame))
    stacks = CallStacks(*(np.array(column, np.int64) for column in (of_call, stack, frames)))
    trace = program.trace(call_stacks=stacks)
    found = stack_lines(trace, trace.operations.call)
    pairs = zip(found.frame.tolist(), found.source.tolist(), strict=True)
    return [(trace.names[frame] if frame >= 0 else None, source) for frame, source in pairs]


def test_what_autograd_s_thread_launches_belongs_to_the_call_that_waits_for_it():
    call, none = ("train.py(12): step", BACKWARD_CALL), (None, LAUNCH)
    before, forward, *backward, step, after = lines(
        (AUTOGRAD, None),
        (MAIN, FORWARD),
        (MAIN, BEGIN),
        (AUTOGRAD, None),
        (AUTOGRAD, None),
        (MAIN, STEP),
        (AUTOGRAD, None),
    )
    assert backward == [call] * 3, "the hook of `run` is no code of the program"
    assert forward == ("model.py(71): forward", LAUNCH) and step == ("train.py(14): step", LAUNCH)
    assert before == after == none, "no backward is known to run"


def test_where_several_threads_have_stacks_none_is_known_to_wait():
    *_, last = lines((OTHER, FORWARD), (MAIN, BEGIN), (AUTOGRAD, None))
    assert last == (None, LAUNCH)


def test_a_call_without_a_stack_between_two_in_one_backward_belongs_to_it():
    call = ("train.py(12): step", BACKWARD_CALL)
    found = lines((MAIN, BEGIN), (MAIN, None), (MAIN, WITHIN), (MAIN, None), (MAIN, STEP))
    assert found[:3] == [call] * 3
    assert found[3] == (None, LAUNCH), "it may be behind the backward"


def test_a_call_between_two_backwards_of_one_line_has_no_line():
    """The next micro-step's forward, of which nsys has no stack."""
    assert lines((MAIN, WITHIN), (MAIN, None), (MAIN, BEGIN))[1] == (None, LAUNCH)


def test_a_product_of_forward_has_no_line():
    assert lines((MAIN, FORWARD), (MAIN, None), (MAIN, FORWARD))[1] == (None, LAUNCH)
