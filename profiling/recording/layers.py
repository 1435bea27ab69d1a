"""profile.detail=layers: ranges inside forward and backward, put on the model from outside.

They serve eager runs, and exist only while a window is open (profiling.recording.window).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

import model as model_module
from model import Block
from profiling.recording.spans import Range, Spans

# functions of model.py that get a range as layers do; the last three belong to attention=slow
FUNCTIONS = {
    "attend": "attend",
    "attention_scores": "scores",
    "attention_weights": "softmax",
    "weighted_values": "values",
}


class Function(nn.Module):
    """A module that calls a function, so that hooks can be put on it."""

    def __init__(self, function: Callable[..., object]):
        super().__init__()
        self.function = function

    def forward(self, *arguments: object) -> object:
        return self.function(*arguments)


@contextmanager
def layer_ranges(model: nn.Module, spans: Spans) -> Iterator[None]:
    """Record ranges of the layers within the block, in forward and in backward.

    They nest as block N > attention > attend > scores, softmax, values, and block N > mlp.
    Backward must run on the calling thread. A function's calls follow one another, so one range
    serves them all.
    """
    with ExitStack() as stack:
        blocks = (module for module in model.modules() if isinstance(module, Block))
        for number, block in enumerate(blocks):
            layers = {f"block {number}": block, "attention": block.attn, "mlp": block.mlp}
            for name, module in layers.items():
                stack.enter_context(module_ranges(module, spans.layer(name)))
        for function, name in FUNCTIONS.items():
            stack.enter_context(function_ranges(function, spans.layer(name)))
        yield


@contextmanager
def function_ranges(name: str, layer: Range) -> Iterator[None]:
    """Replace model.py's function `name` within the block by a module whose hooks record the
    range."""
    original = getattr(model_module, name)
    function = Function(original)
    setattr(model_module, name, function)
    try:
        with module_ranges(function, layer):
            yield
    finally:
        setattr(model_module, name, original)


@contextmanager
def module_ranges(module: nn.Module, layer: Range) -> Iterator[None]:
    """Record the range around the module's forward and backward within the block."""
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
