"""profile.detail=layers: ranges inside forward and backward, put on the model from outside.

For eager runs, and only while a window is open (profiling.capture.window).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

import model as model_module
from model import Block
from profiling.capture.spans import Range, Spans

# functions of model.py that are ranged like layers; the last three are the slow path's
FUNCTIONS = {
    "attend": "attend",
    "attention_scores": "scores",
    "attention_weights": "softmax",
    "weighted_values": "values",
}


class Function(nn.Module):
    """A function as a module, for the sake of a module's hooks."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


@contextmanager
def ranged_layers(model: nn.Module, spans: Spans) -> Iterator[None]:
    """Ranges around block N > attention > attend > scores, softmax, values, and block N > mlp.

    Backward must run on the calling thread. A function's calls follow one another, so one range
    serves them all.
    """
    with ExitStack() as stack:
        blocks = (module for module in model.modules() if isinstance(module, Block))
        for number, block in enumerate(blocks):
            layers = {f"block {number}": block, "attention": block.attn, "mlp": block.mlp}
            for name, module in layers.items():
                stack.enter_context(ranged(module, spans.layer(name)))
        for function, name in FUNCTIONS.items():
            stack.enter_context(ranged_function(function, spans.layer(name)))
        yield


@contextmanager
def ranged_function(name: str, layer: Range) -> Iterator[None]:
    """While it is open model.py's function `name` is called through a module with hooks."""
    original = getattr(model_module, name)
    function = Function(original)
    setattr(model_module, name, function)
    try:
        with ranged(function, layer):
            yield
    finally:
        setattr(model_module, name, original)


@contextmanager
def ranged(module: nn.Module, layer: Range) -> Iterator[None]:
    """The range around the module's forward, and around its backward."""
    enter, leave = (lambda *_: layer.__enter__()), (lambda *_: layer.__exit__())
    hooks = [
        module.register_forward_pre_hook(enter),
        module.register_forward_hook(leave, always_call=True),  # an exception closes it too
        module.register_full_backward_pre_hook(enter),
        module.register_full_backward_hook(leave),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
