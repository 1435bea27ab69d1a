"""Finds a program's outermost modules, and marks their forwards.

Every call of a module is looked at until the outermost ones are known, then only those of their
classes. A hook on the modules themselves would be pickled and copied with them.
"""

import functools

from _profiling_attach.dynamo import hide, tracing_check
from _profiling_attach.step_rule import LEVELS

CALLS = 8  # of one outermost module, after which the search ends
MOST_CLASSES = 4  # a model, a loss ...


class OutermostModules:
    def __init__(self, torch, recorder):
        self.torch, self.recorder = torch, recorder
        self.is_compiling, self.is_traced = torch.compiler.is_compiling, tracing_check(torch)
        self.classes = set()
        self.trained = set()  # ids of modules that were called in training mode
        self.calls = {}  # id of a module -> calls so far

    def put_on(self):
        module_class = self.torch.nn.Module
        original = self.original = module_class.__call__
        modules = self

        def look(module):
            modules.calls[id(module)] = calls = modules.calls.get(id(module), 0) + 1
            try:
                modules.wrap_class(type(module))
            except Exception as error:
                modules.recorder.step_aside(error)
            if calls >= CALLS and module_class.__call__ is search:
                module_class.__call__ = original

        search = self.marking(original, look)
        hide(self.torch, look)
        module_class.__call__ = search

    def wrap_class(self, kind):
        """Mark the calls of this class alone, from now on."""
        if kind in self.classes or len(self.classes) >= MOST_CLASSES:
            return
        self.classes.add(kind)
        own = kind.__dict__.get("__call__")
        module_class = self.torch.nn.Module
        between = kind.__mro__[1 : kind.__mro__.index(module_class)]
        if own is None and any("__call__" in base.__dict__ for base in between):
            return  # a class in between has its own: left alone
        kind.__call__ = self.marking(own or self.original)

    def phase_of(self, module):
        try:
            return "evaluation" if self.is_evaluated(module) else "forward"
        except Exception as error:
            self.recorder.step_aside(error)
            return "forward"

    def is_evaluated(self, module):
        """Whether a module that is trained at other times is called without gradients.

        A teacher is never trained.
        """
        if module.training:
            self.trained.add(id(module))
            return False
        return id(module) in self.trained and not self.torch.is_grad_enabled()

    def marking(self, original, look=None):
        """`original`, a module's __call__, with a phase and a mark round outermost calls.

        `look` is called with the module behind each of them.
        """
        is_compiling, is_traced = self.is_compiling, self.is_traced
        recorder, level, modules = self.recorder, LEVELS["forward"], self
        plain = original is self.original and does_only_choose(original)

        def __call__(self, *args, **kwargs):
            if is_traced():
                return original(self, *args, **kwargs)
            if recorder.quiet_level > level or recorder.inside or is_compiling():
                if plain and self._compiled_call_impl is None:
                    return self._call_impl(*args, **kwargs)  # as it would, a frame less
                return original(self, *args, **kwargs)
            phase = modules.phase_of(self)
            recorder.enter(phase)
            try:
                return original(self, *args, **kwargs)
            finally:
                recorder.leave(phase)
                recorder.forward(self, args, kwargs)
                if look is not None:
                    look(self)

        wrapper = functools.wraps(original)(__call__)
        hide(self.torch, wrapper)
        return wrapper


def does_only_choose(call):
    """Whether a module's __call__ does no more than to choose one of two methods, as torch's."""
    return call.__code__.co_names == ("_compiled_call_impl", "_call_impl")
