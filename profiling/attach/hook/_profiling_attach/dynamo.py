"""Hides the hook's functions from torch.compile, which looks at frames below a skipped one too."""

import sys

CALL_THE_PROGRAM = {
    f"_profiling_attach.{name}" for name in ("patches", "outermost", "own_marks", "watch_torch")
}


def tracing_check(torch):
    """A function that is False as it runs, and True as torch.compile traces it.

    Asked before all else, it keeps the hook's state out of what a compiled graph depends on.
    """
    return getattr(torch.compiler, "is_dynamo_compiling", torch.compiler.is_compiling)


def hide(torch, *functions, callees=False):
    """Hide these functions, and with `callees` all that they call. Return a note where this torch
    offers no way to do so."""
    try:
        frames = torch._C._dynamo.eval_frame
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        strategy = frames._FrameExecStrategy(skip, skip if callees else default)
        for function in functions:
            for code in codes_within(function.__code__):
                frames.set_code_exec_strategy(code, strategy)
    except (AttributeError, TypeError):
        return [f"torch {torch.__version__} cannot hide the hook from torch.compile"]
    return []


def hide_hook(torch):
    """Hide every function of the hook's modules that are imported by now.

    What they call is hidden too, except in modules whose functions call the program's.
    """
    notes = []
    for name, module in list(sys.modules.items()):
        if name.startswith("_profiling_attach."):
            functions = []
            for thing in vars(module).values():
                members = vars(thing).values() if isinstance(thing, type) else (thing,)
                functions += [each for each in members if hasattr(each, "__code__")]
            own = [each for each in functions if each.__module__ == name]
            notes += hide(torch, *own, callees=name not in CALL_THE_PROGRAM)
    return notes[:1]  # the same of each module


def codes_within(code):
    """This code and that of the functions and comprehensions inside it."""
    yield code
    for inner in code.co_consts:
        if hasattr(inner, "co_code"):
            yield from codes_within(inner)
