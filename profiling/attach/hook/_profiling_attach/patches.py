"""Wrappers of a few of torch's functions, and of the steps of optimizers' classes.

A wrapper asks is_traced() first, so a graph that is compiled through it holds the original alone;
dynamo.py hides the wrappers from frames that are compiled below them. Nothing is put on
modules, tensors or optimizers themselves, because programs pickle and copy these.
"""

import functools
import os
import sys
import threading

from _profiling_attach import own_marks
from _profiling_attach.dynamo import hide, tracing_check
from _profiling_attach.outermost import OutermostModules
from _profiling_attach.recorder import Recorder
from _profiling_attach.step_rule import LEVELS


def attach(settings):
    import torch

    recorder = Recorder(settings, torch)
    Patches(torch, recorder).put_on()
    own_marks.recorder = recorder


class Patches:
    def __init__(self, torch, recorder):
        self.torch, self.recorder = torch, recorder
        self.is_compiling, self.is_traced = torch.compiler.is_compiling, tracing_check(torch)
        self.step_owners = set()  # classes of optimizers whose own step is wrapped
        self.in_step = False  # a step that calls super().step() is one step
        self.closures = 0  # of optimizers that are being called
        self.marks_zero_grad = False

    def put_on(self):
        from torch.optim import optimizer

        torch, recorder = self.torch, self.recorder
        self.wrap(optimizer.Optimizer, "__init__", self.count_optimizers)
        self.wrap(optimizer.Optimizer, "__setstate__", self.wrap_restored)
        self.wrap_zero_grad()
        os.register_at_fork(after_in_child=self.wrap_zero_grad)  # its steps may end otherwise
        self.wrap(torch.autograd, "backward", self.mark_backward)
        self.wrap(torch.serialization, "save", self.mark_save)
        torch.save = torch.serialization.save  # pickle wants both names to be one function
        self.wrap(torch.amp.GradScaler, "step", self.mark_skipped_steps)
        self.wrap(torch.autograd.profiler.profile, "_prepare_trace", self.yield_to_program)
        if torch.cuda.is_available():
            self.wrap(torch.cuda.CUDAGraph, "replay", self.mark_replay)
        loader = sys.modules.get("torch.utils.data.dataloader")
        if loader is not None:
            self.wrap(loader._BaseDataLoaderIter, "__next__", self.mark_batch)
        OutermostModules(torch, recorder).put_on()

    def wrap(self, owner, name, make):
        original = getattr(owner, name)
        wrapper = functools.wraps(original)(make(original))
        self.recorder.notes += hide(self.torch, wrapper)
        setattr(owner, name, wrapper)

    # optimizers

    def count_optimizers(self, original):
        is_compiling, recorder, patches = self.is_compiling, self.recorder, self

        def __init__(self, *args, **kwargs):
            if is_compiling():
                original(self, *args, **kwargs)
                return
            patches.wrap_step(type(self))
            original(self, *args, **kwargs)
            recorder.optimizer_made(self)

        return __init__

    def wrap_restored(self, original):
        """An optimizer that is unpickled may be the first of its class in this process."""
        is_compiling, patches = self.is_compiling, self

        def __setstate__(self, state):
            if not is_compiling():
                patches.wrap_step(type(self))
            original(self, state)

        return __setstate__

    def wrap_step(self, kind):
        """Mark the steps of this class of optimizers, before torch puts its range round them.

        Torch's hooks of steps would do the same, but take a third longer.
        """
        try:
            owner = next(base for base in kind.__mro__ if "step" in base.__dict__)
            if owner not in self.step_owners:
                self.step_owners.add(owner)
                self.wrap(owner, "step", self.mark_step)
        except Exception as error:
            self.recorder.step_aside(error)

    def mark_step(self, original):
        is_traced, recorder, patches = self.is_traced, self.recorder, self
        level = LEVELS["optimizer"]

        def step(self, *args, **kwargs):
            if is_traced() or patches.in_step:
                return original(self, *args, **kwargs)
            patches.in_step = True
            quiet = recorder.quiet_level >= level and not args and not kwargs  # nearly all
            try:
                if quiet:
                    result = original(self)
                else:
                    args, kwargs = patches.enter_optimizer(args, kwargs)
                    result = original(self, *args, **kwargs)
            finally:
                patches.in_step = False
                if not quiet:
                    recorder.leave("optimizer")
            if quiet and recorder.ends_to_come and id(self) == recorder.quick_key:
                recorder.ends_to_come -= 1  # as mark() would, a frame less
            else:
                recorder.mark("optimizer", self)
            return result

        return step

    def enter_optimizer(self, args, kwargs):
        """Begin the phase `optimizer`. Returns the arguments of the step, with its closure
        wrapped."""
        try:
            if self.recorder.quiet_level < 0:
                self.recorder.enter("optimizer")
            closure = args[0] if args else kwargs.get("closure")
            if not callable(closure):
                return args, kwargs
            inner = self.without_closure(closure)
            return ((inner, *args[1:]), kwargs) if args else (args, {**kwargs, "closure": inner})
        except Exception as error:
            self.recorder.step_aside(error)
            return args, kwargs

    def without_closure(self, closure):
        """A closure that is no part of the phase `optimizer`: it does forward and backward."""
        recorder, patches = self.recorder, self

        @functools.wraps(closure)
        def call(*args, **kwargs):
            recorder.leave("optimizer")
            patches.closures += 1
            try:
                return closure(*args, **kwargs)
            finally:
                patches.closures -= 1
                recorder.enter("optimizer")

        hide(self.torch, call)
        return call

    def wrap_zero_grad(self):
        """Mark zero_grad(), if it is not marked."""
        if not self.marks_zero_grad:
            self.marks_zero_grad = True
            self.wrap(self.torch.optim.Optimizer, "zero_grad", self.mark_zero_grad)

    def mark_zero_grad(self, original):
        """Mark each zero_grad() until steps end with marks of a higher kind, as most do.

        Then the method is again as it was, unless somebody else has wrapped it, too.
        """
        is_traced, recorder, patches = self.is_traced, self.recorder, self
        level, owner = LEVELS["zero_grad"], self.torch.optim.Optimizer

        def zero_grad(self, *args, **kwargs):
            original(self, *args, **kwargs)
            if is_traced() or patches.closures:
                return
            if recorder.quiet_level <= level:
                recorder.mark("zero_grad", self)
            elif owner.zero_grad is zero_grad:
                owner.zero_grad, patches.marks_zero_grad = original, False

        return zero_grad

    def mark_skipped_steps(self, original):
        """A step that is skipped for infinite gradients ends an iteration all the same."""
        is_compiling, recorder = self.is_compiling, self.recorder

        def step(self, optimizer, *args, **kwargs):
            inner = getattr(optimizer, "optimizer", optimizer)
            before = recorder.count("optimizer", inner)
            result = original(self, optimizer, *args, **kwargs)
            if not is_compiling() and recorder.count("optimizer", inner) == before:
                recorder.skipped_steps += 1
                recorder.mark("optimizer", inner)
            return result

        return step

    # phases

    def mark_backward(self, original):
        is_compiling, is_traced = self.is_compiling, self.is_traced
        recorder, level = self.recorder, LEVELS["backward"]

        def backward(*args, **kwargs):
            if is_traced() or recorder.quiet_level > level or recorder.inside or is_compiling():
                return original(*args, **kwargs)
            recorder.keep_loss(args[0] if args else kwargs.get("tensors"))
            recorder.enter("backward")
            try:
                return original(*args, **kwargs)
            finally:
                recorder.leave("backward")
                recorder.mark("backward")

        return backward

    def mark_batch(self, original):
        recorder, level = self.recorder, LEVELS["data"]

        def __next__(self):
            if recorder.quiet_level > level or recorder.inside:
                return original(self)
            recorder.enter("data")
            try:
                return original(self)
            finally:
                recorder.leave("data")
                recorder.mark("data")

        return __next__

    def mark_save(self, original):
        recorder, main_thread = self.recorder, threading.main_thread().ident

        def save(*args, **kwargs):
            elsewhere = threading.get_ident() != main_thread  # then no step waits for it
            if elsewhere or recorder.inside or not recorder.phases.on:
                return original(*args, **kwargs)
            recorder.enter("checkpoint")
            try:
                return original(*args, **kwargs)
            finally:
                recorder.leave("checkpoint")

        return save

    def mark_replay(self, original):
        recorder = self.recorder

        def replay(self):
            original(self)
            recorder.mark("replay", self)

        return replay

    def yield_to_program(self, original):
        """Two profilers cannot be on: ours ends where the program starts its own."""
        recorder = self.recorder

        def _prepare_trace(self):
            recorder.yield_profiler()
            return original(self)

        return _prepare_trace
