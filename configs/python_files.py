"""Reader of Python files of `key = value` lines, as nanoGPT's configurations are, as data.

Nothing in them runs. Called by configs.files, and by profiling.launch.bench, which reads the keys
of another checkout from its programs.
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
TOO_LONG = "Exceeds the limit"  # begins Python's message about an integer with too many digits
ALLOWED = "a number, a string, True, False, None, a key set above, or sums and products of these"


def parse_file(path: Path) -> ast.Module:
    """Syntax tree of the file. Raises ValueError if it is not Python."""
    source = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as about escapes in its strings
            return ast.parse(source)
    except SyntaxError as error:
        line = source.splitlines()[(error.lineno or 1) - 1 :][:1]
        key = b"".join(line).partition(b"=")[0].decode(errors="replace").strip()
        if error.msg.startswith(TOO_LONG):
            raise ValueError(f"{path}: {key}: this number has too many digits") from error
        place = f"line {error.lineno}: " if error.lineno else ""
        raise ValueError(f"{path}: is not Python: {place}{error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # a null byte; too many brackets
        raise ValueError(f"{path}: is not Python: {error or 'nested too deeply'}") from error


def settings(path: Path) -> dict[str, Setting]:
    """Value of each name at the end of the file. Raises ValueError for anything but settings."""
    values: dict[str, Setting] = {}
    for node in parse_file(path).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a string between the lines, as a comment
        names = node.targets if isinstance(node, ast.Assign) else []
        if not names or not all(isinstance(name, ast.Name) for name in names):
            raise ValueError(
                f"{path}: line {node.lineno}: {first_line(node)}: not of the form key = value; "
                "code in such a file is not run"
            )
        assert isinstance(node, ast.Assign)
        for name in names:
            assert isinstance(name, ast.Name)
            try:
                values[name.id] = value_of(node.value, values)
            except (ValueError, ArithmeticError, RecursionError):
                raise ValueError(
                    f"{path}: {name.id} = {first_line(node.value)}: not {ALLOWED}; code in such "
                    "a file is not run"
                ) from None
    return values


def value_of(node: ast.expr, known: Mapping[str, Setting]) -> Setting:
    """Value of a literal, of a name in `known`, or of arithmetic with numbers.

    Raises ValueError for anything else, ArithmeticError if the arithmetic has no result.
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
    """Value of a node that must be a number. Raises ValueError if it is none."""
    value = value_of(node, known)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise ValueError("no number")


def first_line(node: ast.AST) -> str:
    """First line of the code, at most 60 characters, to be shown in a message."""
    return ast.unparse(node).splitlines()[0][:60]
