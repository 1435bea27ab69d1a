"""Find the places in a function that call something a capture names. Called by source_files."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from profiling.analysis.source.own_code import frame_named

BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)\b.*")
MODULE = re.compile(r"nn\.Module: (?P<name>\w+?)_\d+")
OPTIMIZER_STEP = re.compile(r"torch/optim/optimizer\.py\(\d+\): (?:profile_hook_step|wrapper)")
# operators of Python that call an operator of PyTorch without a function in between
OPERATORS: dict[str, type[ast.AST]] = {
    "aten::add": ast.Add,
    "aten::sub": ast.Sub,
    "aten::rsub": ast.Sub,
    "aten::mul": ast.Mult,
    "aten::div": ast.Div,
    "aten::floor_divide": ast.FloorDiv,
    "aten::remainder": ast.Mod,
    "aten::matmul": ast.MatMult,
    "aten::pow": ast.Pow,
    "aten::neg": ast.USub,
}
INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)  # run as frames of theirs
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# what is inside may run never or several times
SOMETIMES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.IfExp, ast.BoolOp)


@dataclass(frozen=True)
class Site:
    """A place in a function."""

    line: int
    once: bool  # whenever the function runs, it runs once


def call_sites(tree: ast.Module, scope: ast.AST, callee: str) -> list[Site]:
    """The places in the function `scope` that may call `callee`, in the order of execution.

    `callee` is the name of a frame, of a module or of an operator of PyTorch.
    """
    names, wanted = names_of(callee), OPERATORS.get(callee)
    if module := MODULE.fullmatch(callee):
        names = attributes(tree, scope, module["name"])
    sites = []
    for node, once in executed(scope, True):
        if isinstance(node, ast.Call) and name_called(node) in names:
            sites.append(Site(node.func.end_lineno or node.lineno, once))
        elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.AugAssign) and is_of(node.op, wanted):
            sites.append(Site(node.lineno, once))
    return sites


def kind_of(callee: str) -> str:
    """The callee without the number of a module, by which turns are counted."""
    module = MODULE.fullmatch(callee)
    return module["name"] if module else callee


def attributes(tree: ast.Module, function: ast.AST, kind: str) -> set[str]:
    """Attributes of `self` that the class around the function makes with the class `kind`."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    of = [node for node in classes if function in node.body]
    return {
        target.attr
        for node in (inner for each in of for inner in ast.walk(each))
        if isinstance(node, ast.Assign) and makes(node.value, kind)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }


def makes(value: ast.AST, kind: str) -> bool:
    return any(isinstance(node, ast.Call) and name_called(node) == kind for node in ast.walk(value))


def is_of(operator: ast.AST, wanted: type[ast.AST] | None) -> bool:
    return wanted is not None and isinstance(operator, wanted)


def names_of(callee: str) -> set[str]:
    """The names by which a program may call the frame."""
    if OPTIMIZER_STEP.fullmatch(callee):
        return {"step"}
    if built_in := BUILT_IN.fullmatch(callee):
        return {built_in["name"]}
    frame = frame_named(callee)
    return {frame.function} if frame else set()


def executed(node: ast.AST, once: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield (node, whether it runs once) for what a function's body executes, in its order."""
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, INNER):
            inner_once = once and not isinstance(inner, (*SOMETIMES, *COMPREHENSIONS))
            yield from executed(inner, inner_once)
            yield inner, inner_once


def name_called(call: ast.Call) -> str | None:
    """The last part of the name that is called: softmax of F.softmax(x)."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None
