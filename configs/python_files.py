"""Python files of `key = value` lines, as nanoGPT's configurations are, read as data.

Nothing of them runs. Called by configs.files, and by profiling.launch.bench, which reads the keys
of another checkout off its programs.
"""

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from cli.keys import LARGEST

Setting = bool | int | float | str | None
Number = int | float
ARITHMETIC: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
TOO_LONG = "Exceeds the limit"  # Python's own, of an integer's digits
ALLOWED = "a number, a text, True, False, None, a key set above or sums and products of these"


def parsed(path: Path) -> ast.Module:
    """Its syntax tree. Raises ValueError where it is not Python."""
    source = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in its texts
            return ast.parse(source)
    except SyntaxError as error:
        line = source.splitlines()[(error.lineno or 1) - 1 :][:1]
        key = b"".join(line).partition(b"=")[0].decode(errors="replace").strip()
        if error.msg.startswith(TOO_LONG):
            raise ValueError(f"{path}: {key}: a number too long to be read") from error
        place = f"line {error.lineno}: " if error.lineno else ""
        raise ValueError(f"{path}: is not Python: {place}{error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # a null byte; too many brackets
        raise ValueError(f"{path}: is not Python: {error or 'nested too deeply'}") from error


def settings(path: Path) -> dict[str, Setting]:
    """What each of its names is set to at its end. Raises ValueError for all that is no setting."""
    found: dict[str, Setting] = {}
    for node in parsed(path).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a text between the lines, as a comment
        names = node.targets if isinstance(node, ast.Assign) else []
        if not names or not all(isinstance(name, ast.Name) for name in names):
            raise ValueError(
                f"{path}: line {node.lineno}: {first_line(node)}: not of the form key = value; "
                "nothing in such a file runs"
            )
        assert isinstance(node, ast.Assign)
        for name in names:
            assert isinstance(name, ast.Name)
            try:
                found[name.id] = value_of(node.value, found)
            except (ValueError, ArithmeticError, RecursionError):
                raise ValueError(
                    f"{path}: {name.id} = {first_line(node.value)}: not {ALLOWED}; nothing in "
                    "such a file runs"
                ) from None
    return found


def value_of(node: ast.expr, known: Mapping[str, Setting]) -> Setting:
    """The value of a literal, of a name in `known`, or of arithmetic with numbers.

    Raises ValueError for all else, ArithmeticError where that has no result.
    """
    match node:
        case ast.Constant(bool() | int() | float() | str() | None as value):
            return value
        case ast.Name(name) if name in known:
            return known[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -number_of(operand, known)
        case ast.BinOp(left, sign, right) if type(sign) in ARITHMETIC:
            result = ARITHMETIC[type(sign)](number_of(left, known), number_of(right, known))
            if abs(result) <= LARGEST:  # a product of products soon has more digits than memory
                return result
    raise ValueError("no setting")


def number_of(node: ast.expr, known: Mapping[str, Setting]) -> Number:
    """Raises ValueError where it is none."""
    value = value_of(node, known)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise ValueError("no number")


def first_line(node: ast.AST) -> str:
    """As it may be shown of code."""
    return ast.unparse(node).splitlines()[0][:60]
