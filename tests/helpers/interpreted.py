"""Speed up Triton's interpreter by caching repeated work. Import it before any kernel runs.

The interpreter makes a tensor and a type for each result. There are few shapes, so the attributes
of each are computed once. Garbage collection is off, as these programs are short.
"""

import gc
import inspect
from dataclasses import replace

from triton.language import core, semantic
from triton.runtime import interpreter

gc.disable()

# Sums and products of integers were made again in 64 bits: a quarter of the time. Here numpy's wrap
# around as a GPU's do, and the tests compare what comes of it.
builder = interpreter.interpreter_builder
builder.options = replace(builder.options, sanitize_overflow=False)

# Each launch looks for triton.language's built-in functions again. A call of one goes through a
# wrapper that sets the semantics, and another that requires them.
with_semantics = {}


def patch_known_functions(owner, builder, scope):
    if owner not in with_semantics:
        members = [each for each in inspect.getmembers(owner) if core.is_builtin(each[1])]
        with_semantics[owner] = [(name, give_semantics(member)) for name, member in members]
    for name, function in with_semantics[owner]:
        scope.set_attr(owner, name, function)


def give_semantics(member):
    function = vars(member).get("__wrapped__", member)

    def call(*args, **kwargs):
        kwargs["_semantic"] = interpreter.interpreter_semantic
        return function(*args, **kwargs)

    return call


interpreter._patch_builtin = patch_known_functions

# At each call of a function within a kernel the interpreter patches all of triton.language again.
# Once for each module of such functions is enough, because the launch around the call patches it.
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

# Below are checks of what is nearly always not wrapped, the same type or of one shape, and of sizes
# that the interpreter itself has computed.
unwrap, unwrapped = core._unwrap_if_constexpr, {int, float, bool, core.dtype, core.tensor}


def unwrap_if_it_may_be_wrapped(value):
    return value if type(value) in unwrapped else unwrap(value)


core._unwrap_if_constexpr = unwrap_if_it_may_be_wrapped

interpreter.TensorHandle.__post_init__ = lambda handle: None

is_equal = core.dtype.__eq__
core.dtype.__eq__ = lambda dtype, other: dtype is other or is_equal(dtype, other)

Semantic = semantic.TritonSemantic
broadcast, cast = Semantic.broadcast_impl_value, Semantic.cast
check_types = Semantic.binary_op_type_checking_impl


def broadcast_unless_alike(self, lhs, rhs):
    ours, theirs = lhs.type, rhs.type
    if ours.is_block() and theirs.is_block() and ours.shape.values == theirs.shape.values:
        return lhs, rhs
    return broadcast(self, lhs, rhs)


def cast_unless_alike(self, input, dst_ty, *rounding):
    if input.type.scalar is dst_ty.scalar:
        return input
    return cast(self, input, dst_ty, *rounding)


UNCHANGED = {"fp32", "int32", "uint32", "int64"}  # by all operations on two of the type


def check_types_unless_alike(self, lhs, rhs, *allowed):
    tensors = isinstance(lhs, core.tensor) and isinstance(rhs, core.tensor)
    if tensors and lhs.dtype is rhs.dtype and lhs.dtype.name in UNCHANGED:
        return broadcast_unless_alike(self, lhs, rhs)
    return check_types(self, lhs, rhs, *allowed)


Semantic.binary_op_type_checking_impl = check_types_unless_alike
Semantic.broadcast_impl_value = broadcast_unless_alike
Semantic.cast = cast_unless_alike
