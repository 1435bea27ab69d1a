"""Makes the one package that an installation has: `profiling`, with all others inside it.

In a checkout the packages cli, configs, data, kernels and training and the modules train, model and
sample lie beside profiling/, as nanoGPT's users know them. A wheel would put these common names
into everybody's site-packages. So here they move into profiling/, and each import of one of them
becomes one of profiling.NAME. An editable installation keeps the layout of the checkout.

The pages' charts need one file of plotly, a script of 4.8 MB in a package of 59 MB. The wheel has
it as pages hold it, packed, with its licence; a checkout has the package.
"""

import ast
import shutil
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from runpy import run_path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

PACKAGE = "profiling"
BY_NAME = ("import_module", "find_spec", "run_module", "PackageLoader")  # given a module's name


class OnePackage(build_py):
    def run(self) -> None:
        """Build the package, without what an earlier build has left in the folder."""
        if self.editable_mode:
            super().run()
            return
        build = Path(self.build_lib)
        shutil.rmtree(build, ignore_errors=True)
        super().run()
        moved = [path for path in build.iterdir() if path.name != PACKAGE]
        names = {path.stem for path in moved}
        for path in moved:
            if (build / PACKAGE / path.name).exists():
                raise SystemExit(f"{PACKAGE}/{path.name} exists, so {path.name} cannot move there")
            path.rename(build / PACKAGE / path.name)
        for path in build.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            path.write_text(with_imports_of_package(text, names, path), encoding="utf-8")
        add_plotly(build / PACKAGE / "report" / "packed.py")


class OneName(egg_info):
    def run(self) -> None:
        """Write the metadata, in which the package is the only name that can be imported."""
        super().run()
        Path(self.egg_info, "top_level.txt").write_text(f"{PACKAGE}\n")


def add_plotly(packing: Path) -> None:
    """Write plotly's script and licence beside the module `packing`, which packs it."""
    packed = run_path(str(packing))
    script = packed["plotly_script"]()
    packed["IN_WHEEL"].write_text(script, "ascii")
    (licence,) = (file for file in distribution("plotly").files or () if "LICENSE" in file.name)
    packing.with_name("plotly.LICENSE").write_bytes(licence.read_binary())


def with_imports_of_package(text: str, names: set[str], path: Path) -> str:
    """The source with imports of `names` made imports of PACKAGE; lines keep their numbers.

    Exits with a message at a form that cannot be translated.
    """
    lines = text.splitlines(keepends=True)
    for line, column in sorted(places(ast.parse(text), names, path), reverse=True):
        before, after = lines[line - 1][:column], lines[line - 1][column:]
        if after.split(".")[0].split()[0].rstrip(",") not in names:
            raise SystemExit(f"{path}:{line}: the import does not begin where it should")
        lines[line - 1] = f"{before}{PACKAGE}.{after}"
    return "".join(lines)


def places(tree: ast.AST, names: set[str], path: Path) -> Iterator[tuple[int, int]]:
    """Lines, from 1, and columns where an imported module's name is one of `names`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            if str(node.module).split(".")[0] in names:
                yield node.lineno, node.col_offset + len("from ")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] not in names:
                    continue
                if alias.asname is None:
                    raise SystemExit(f"{path}:{node.lineno}: needs `as`, or from ... import ...")
                yield alias.lineno, alias.col_offset
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in BY_NAME:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.JoinedStr):
                first = first.values[0]
            if isinstance(first, ast.Constant) and str(first.value).split(".")[0] in names:
                raise SystemExit(f"{path}:{node.lineno}: names the module in a string")


if __name__ == "__main__":
    setup(cmdclass={"build_py": OnePackage, "egg_info": OneName})
