"""The direction of imports, read off the sources: nothing here is executed."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("configs", "data", "profiling", "training")
TRAINER = ("configs", "training", "train", "sample")


def module_name(path: Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    module_name(path): path
    for path in [
        *PROJECT.glob("*.py"),
        *(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")),
    ]
}


def typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements(node: ast.AST, inside_functions: bool):
    """The import statements below a node that are executed, at import or ever."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif typing_only(child):
            continue
        elif inside_functions or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from statements(child, inside_functions)


def imports(module: str, inside_functions: bool = True) -> set[str]:
    """What a module imports: dotted names, of this project down to the module."""
    found = set()
    for node in statements(ast.parse(SOURCES[module].read_text("utf-8")), inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        assert node.level == 0, f"{module}: a relative import"
        inner = {f"{node.module}.{alias.name}" for alias in node.names}
        modules = inner & set(SOURCES)
        found |= modules
        if len(modules) < len(inner):
            found.add(node.module)
    return found


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def modules_of(*packages: str) -> list[str]:
    return [module for module in SOURCES if within(module, *packages)]


def test_the_sources_are_found_and_read():
    assert {"train", "model", "data.batches", "training.step", "configs"} <= set(SOURCES)
    assert "training.checkpoint" in imports("train") and "torch" in imports("model")


@pytest.mark.parametrize("module", modules_of("model", "data", "profiling.capture"))
def test_the_foundations_do_not_know_the_trainer(module):
    assert not [name for name in imports(module) if within(name, *TRAINER)]


@pytest.mark.parametrize("module", modules_of("configs"))
def test_configs_know_of_the_trainer_its_keys_alone(module):
    known = [name for name in imports(module) if within(name, "training", "train", "sample")]
    assert set(known) <= {"configs.training"}


@pytest.mark.parametrize("module", modules_of("training"))
def test_training_does_not_know_the_loop(module):
    assert not [name for name in imports(module) if within(name, "train", "sample")]


@pytest.mark.parametrize("module", modules_of("profiling"))
def test_the_analysis_runs_without_torch_and_trainer(module):
    if within(module, "profiling.capture", "profiling.lab"):  # inside the training process
        return
    forbidden = ("torch", "model", "data", *TRAINER, "profiling.capture", "profiling.lab")
    assert not [name for name in imports(module, False) if within(name, *forbidden)]


# package -> what it may know of profiling besides itself: timeline <- analysis <- report <- verbs
SHARED = ("profiling.hardware", "profiling.kernel_names", "profiling.metric_names")
ARROWS = {
    "profiling.timeline": ("profiling.tools.nsys_tool", "profiling.tools.environment"),
    "profiling.analysis": ("profiling.timeline", *SHARED),
    "profiling.report": (
        "profiling.analysis",
        "profiling.timeline",
        "cli.parser",
        *SHARED,
    ),
}
VERBS_USE = {"profiling.verbs.log": ("profiling.timeline.scrub",)}  # verbs that lie in report


@pytest.mark.parametrize("package", ARROWS)
def test_a_capture_is_read_then_analysed_then_told(package):
    """Also inside functions."""
    for module in modules_of(package):
        known = (package, *ARROWS[package], *VERBS_USE.get(module, ()))
        others = [name for name in imports(module) if within(name, "profiling")]
        assert [name for name in others if not within(name, *known)] == [], module


@pytest.mark.parametrize("module", modules_of("profiling.timeline", "profiling.analysis"))
def test_figures_need_no_page_and_no_framework(module):
    framework = ("torch", "triton", "plotly", "jinja2", "rich", "wandb", "configs", "training")
    assert not [name for name in imports(module) if within(name, *framework)]


@pytest.mark.parametrize("module", (*SHARED, "cli.parser"))
def test_what_both_halves_read_imports_only_the_standard_library(module):
    assert imports(module) <= sys.stdlib_module_names


def test_the_model_has_no_line_about_profiling():
    assert not [name for name in imports("model") if within(name, "profiling", "nvtx")]
    assert "profil" not in SOURCES["model"].read_text("utf-8").lower()


def test_there_are_no_circles():
    edges = {
        module: {name for name in imports(module, False) if name in SOURCES and name != module}
        for module in SOURCES
    }
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join([*way[way.index(module) :], module])
        if module not in done:
            for name in sorted(edges[module]):
                visit(name, (*way, module))
            done.add(module)

    for module in SOURCES:
        visit(module, ())


def test_every_imported_package_is_required():
    """Of pyproject.toml alone: what is imported nowhere may still be meant for a reader."""
    optional = {"training.tensorboard": "tensorboard"}  # module -> the extra that it needs
    optional |= {f"profiling.lab.{name}": "dev" for name in ("square_triton", "timer_check")}
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    distributions = {"hydra": "hydra-core", "yaml": "omegaconf"}  # which requires PyYAML itself
    distributions |= {"pynvml": "nvidia-ml-py", "wandb_workspaces": "wandb-workspaces"}
    for module in SOURCES:
        extra = project["optional-dependencies"].get(optional.get(module), [])
        lines = [*project["dependencies"], *extra]
        names = {re.split(r"[^\w.-]", line)[0] for line in lines}
        for name in {name.split(".")[0] for name in imports(module)}:
            if name in sys.stdlib_module_names or name in {m.split(".")[0] for m in SOURCES}:
                continue
            assert distributions.get(name, name) in names, f"{module} imports {name}"


def test_requirements_that_keep_an_installation_from_breaking():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "<3.14" in project["requires-python"]  # Hydra 1.3 does not start there
    bounds = dict(re.match(r"([\w.-]+)(.*)", line).groups() for line in project["dependencies"])
    assert "<2.4" in bounds["omegaconf"]  # or pip falls back to an old Hydra
    assert ">=1.3.7" in bounds["hydra-core"] and "<1.4" in bounds["hydra-core"]
    assert ">=2.6" in bounds["torch"]
