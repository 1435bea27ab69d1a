"""Wrappers that the hook puts on torch's functions, and takes off again."""

from types import SimpleNamespace

import pytest
from _profiling_attach.patches import Patches
from _profiling_attach.step_rule import LEVELS


@pytest.fixture
def zeroed():
    """An optimizer, the patches of its class, and the marks of their recorder."""

    class Optimizer:
        calls = 0

        def zero_grad(self, set_to_none=True):
            self.calls += 1

    marks = []
    recorder = SimpleNamespace(quiet_level=-1, notes=[], mark=lambda *mark: marks.append(mark))
    compiler = SimpleNamespace(is_compiling=lambda: False)
    optim = SimpleNamespace(Optimizer=Optimizer)
    patches = Patches(SimpleNamespace(compiler=compiler, optim=optim, __version__="2"), recorder)
    return Optimizer(), patches, marks


def test_zero_grad_is_marked_until_steps_end_with_marks_of_a_higher_kind(zeroed):
    optimizer, patches, marks = zeroed
    kind, original = type(optimizer), type(optimizer).zero_grad
    patches.wrap_zero_grad()
    optimizer.zero_grad()
    patches.recorder.quiet_level = LEVELS["zero_grad"]
    optimizer.zero_grad(set_to_none=False)
    assert marks == [("zero_grad", optimizer)] * 2 and kind.zero_grad is not original
    patches.recorder.quiet_level = LEVELS["optimizer"]
    optimizer.zero_grad()
    assert len(marks) == 2 and optimizer.calls == 3 and kind.zero_grad is original


def test_zero_grad_is_marked_once_in_a_forked_process(zeroed):
    optimizer, patches, marks = zeroed
    patches.wrap_zero_grad()
    patches.wrap_zero_grad()  # forked before steps were known
    optimizer.zero_grad()
    assert len(marks) == 1
    patches.recorder.quiet_level = LEVELS["optimizer"]
    optimizer.zero_grad()
    patches.recorder.quiet_level = -1
    patches.wrap_zero_grad()  # forked when they were
    optimizer.zero_grad()
    assert len(marks) == 2


def test_a_wrapper_that_another_tool_put_on_zero_grad_stays(zeroed):
    optimizer, patches, marks = zeroed
    patches.wrap_zero_grad()
    ours = type(optimizer).zero_grad
    theirs = type(optimizer).zero_grad = lambda self: ours(self)
    patches.recorder.quiet_level = LEVELS["optimizer"]
    optimizer.zero_grad()
    assert type(optimizer).zero_grad is theirs and optimizer.calls == 1 and not marks


def test_untimed_steps_of_the_optimizer_that_ends_them_are_counted_without_a_mark(zeroed):
    optimizer, patches, marks = zeroed
    recorder = patches.recorder
    recorder.enter = recorder.leave = lambda *kind: None
    recorder.quick_key, recorder.ends_to_come = id(optimizer), 2
    recorder.quiet_level = LEVELS["optimizer"]
    step = patches.mark_step(lambda self, *args: len(args))
    assert [step(optimizer), step(type(optimizer)()), step(optimizer)] == [0, 0, 0]
    assert recorder.ends_to_come == 0 and len(marks) == 1  # another optimizer leaves its mark
    assert step(optimizer) == 0 and step(optimizer, 1) == 1
    assert marks[1:] == [("optimizer", optimizer)] * 2
    recorder.quiet_level, recorder.ends_to_come = LEVELS["zero_grad"], 1
    step(optimizer)  # other marks end the steps
    assert recorder.ends_to_come == 1 and len(marks) == 4
