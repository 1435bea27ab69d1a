"""Triton's interpreter, without what it does over and over. To be imported before any kernel runs.

It makes a tensor and a type of each result, of few shapes: attributes of all with one shape are
worked out once. Nor does anybody have to look for cycles in what these short programs allocate.
"""

import gc

from triton.language import core
from triton.runtime import interpreter

gc.disable()

# At each call of a function within a kernel it makes triton.language over once more, for which it
# looks through all of it. Once for each module of such functions is enough, for the launch around
# the call has done so.
call, done = interpreter.InterpretedFunction.__call__, set()


def call_again(function, *args, **kwargs):
    module = id(function.fn.__globals__)
    if module in done:
        return function.rewrite()(*args, **kwargs)
    done.add(module)
    return call(function, *args, **kwargs)


interpreter.InterpretedFunction.__call__ = call_again

make_block_type, block_types = core.block_type.__init__, {}


def make_known_block_type(block_type, element_ty, shape):
    key = (element_ty.name, *shape)
    if key in block_types:
        block_type.__dict__.update(block_types[key], element_ty=element_ty)
    else:
        make_block_type(block_type, element_ty, shape)
        block_types[key] = vars(block_type).copy()


core.block_type.__init__ = make_known_block_type

make_tensor, tensors = core.tensor.__init__, {}


def make_known_tensor(tensor, handle, type):
    if type.name in tensors:
        tensor.__dict__.update(tensors[type.name], handle=handle, type=type, dtype=type.scalar)
    else:
        make_tensor(tensor, handle, type)
        tensors[type.name] = vars(tensor).copy()


core.tensor.__init__ = make_known_tensor

np_dtype_of, np_dtypes = interpreter._get_np_dtype, {}


def known_np_dtype(type):
    if type.name not in np_dtypes:
        np_dtypes[type.name] = np_dtype_of(type)
    return np_dtypes[type.name]


interpreter._get_np_dtype = known_np_dtype
