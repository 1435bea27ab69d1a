"""Triton's interpreter, without what it does over and over. To be imported before any kernel runs.

At each call of a function within a kernel it makes triton.language over once more, for which it
looks through all of it: a third of its time. Once for each module of such functions is enough, for
the launch around the call has done so.
"""

from triton.runtime import interpreter

call, done = interpreter.InterpretedFunction.__call__, set()


def call_again(function, *args, **kwargs):
    module = id(function.fn.__globals__)
    if module in done:
        return function.rewrite()(*args, **kwargs)
    done.add(module)
    return call(function, *args, **kwargs)


interpreter.InterpretedFunction.__call__ = call_again
