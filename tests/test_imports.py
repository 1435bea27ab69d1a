"""Direction of imports, read from the sources: nothing here is executed."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import PROJECT

# from the ground up: what stands on one line does not know its neighbours
HOUSE = (
    ("cli",),
    ("configs", "kernels"),
    ("model", "data"),
    ("kernels.fused_model",),  # the model again, with kernels; it makes every model
    ("profiling.shared",),  # tables, records, what hardware can do
    ("profiling.attach",),  # inside programs of others: the standard library alone
    ("profiling",),  # the two modules that start the others by name
    ("profiling.tools", "profiling.recording"),
    ("profiling.timeline", "training.machine", "training.sampling"),
    ("training.ranks",),
    ("training.optimizers",),
    ("training.step",),
    ("training.disk",),
    ("training.metrics",),
    ("training",),
    ("profiling.analysis", "train", "sample"),
    ("profiling.report",),
    ("profiling.launch", "profiling.lab", "profiling.agent"),
    ("profiling.verbs",),
    ("profiling.library",),
    ("benchmarks",),
    ("validation", "tests.soak"),
)
FLOOR = {room: floor for floor, rooms in enumerate(HOUSE) for room in rooms}
ROOMS = [room for rooms in HOUSE for room in rooms]
FOLDERS = {room.split(".")[0] for room in ROOMS} - {"model", "train", "sample", "tests"}
FOLDERS |= {"tests/soak"}

# runs inside programs of others, and is no package
HOOK = PROJECT / "profiling" / "attach" / "hook"
HOOK_PACKAGE = "_profiling_attach"


def module_name(path: Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    module_name(path): path
    for path in [
        *PROJECT.glob("*.py"),
        *(path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py")),
    ]
    if not path.name.startswith("test_")  # beside the soak tests
    and path != PROJECT / "setup.py"  # of the build
    and HOOK not in path.parents
}


def typing_only(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, (ast.Name, ast.Attribute))
        and ast.unparse(node.test).endswith("TYPE_CHECKING")
    )


def statements(node: ast.AST, inside_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements below a node that are executed, at import or ever."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.expr) or typing_only(child):
            continue
        elif inside_functions or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from statements(child, inside_functions)


@cache
def imports(module: str, inside_functions: bool = True) -> frozenset[str]:
    """Dotted names that a module imports, of this project down to the module."""
    found: set[str] = set()
    for node in statements(ast.parse(SOURCES[module].read_text("utf-8")), inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        assert node.level == 0, f"{module}: a relative import"
        inner = {f"{node.module}.{alias.name}" for alias in node.names}
        modules = inner & set(SOURCES)
        found |= modules
        if len(modules) < len(inner):
            found.add(str(node.module))
    return frozenset(found)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def modules_of(*packages: str) -> list[str]:
    return [module for module in SOURCES if within(module, *packages)]


def room_of(module: str) -> str:
    """The longest of ROOMS that the module is in."""
    return max((room for room in ROOMS if within(module, room)), key=len, default=module)


def folder_of(module: str) -> str:
    """The folder that the module lies in, `.` for those beside train.py."""
    return ".".join(SOURCES[module].relative_to(PROJECT).parts[:-1]) or "."


@pytest.fixture(scope="module")
def edges() -> list[tuple[str, str]]:
    """Pairs of a module and one that it imports; all sources are read for them."""
    return [(m, name) for m in SOURCES for name in imports(m) if name in SOURCES and name != m]


def test_the_sources_are_found_and_read(edges):
    assert {"train", "model", "data.batches", "training.step.step", "configs"} <= set(SOURCES)
    assert "training.disk.checkpoint" in imports("train") and "torch" in imports("model")
    assert ("profiling.verbs.run", "profiling.launch.command") in edges


def test_every_module_has_its_place_in_the_house():
    assert {room_of(module) for module in SOURCES} == set(ROOMS)
    inside = {
        f"{house}.{path.name}"
        for house in ("profiling", "training")
        for path in (PROJECT / house).iterdir()
        if path.is_dir()
    }
    assert {name for name in inside if modules_of(name)} <= set(ROOMS)


def test_no_import_goes_up(edges):
    """Imports inside functions count too."""
    up = [
        f"{module} -> {name}"
        for module, name in edges
        if room_of(module) != room_of(name) and FLOOR[room_of(name)] >= FLOOR[room_of(module)]
    ]
    assert up == []


def test_no_two_folders_import_each_other(edges):
    """A folder and one inside it count as one."""
    between: dict[tuple[str, str], list[str]] = {}
    for module, name in edges:
        pair = folder_of(module), folder_of(name)
        if "." not in pair and not within(pair[0], pair[1]) and not within(pair[1], pair[0]):
            between.setdefault(pair, []).append(f"{module} -> {name}")
    assert [between[pair] for pair in between if pair[::-1] in between] == []


def test_there_are_no_circles():
    """Imports inside functions count too."""
    edges = {
        module: {name for name in imports(module) if name in SOURCES and name != module}
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


@pytest.mark.parametrize(
    "room", ("profiling.timeline", "profiling.analysis", "profiling.report", "profiling.agent")
)
def test_captures_are_read_without_torch_and_the_trainer(room):
    """Two tables, the schema and two rules of ranks may be known."""
    others = ("torch", "triton", "hydra", "omegaconf", "model", "data", "training", "train")
    for module in modules_of(room):
        known = {name for name in imports(module) if within(name, "configs")}
        allowed = {"configs.backends", "configs.optimizers", "configs.schema", "configs.sharing"}
        assert known <= allowed, module
        others_known = [n for n in imports(module) if within(n, *others, "profiling.recording")]
        assert others_known == [], module


@pytest.mark.parametrize("room", ("profiling.tools", "profiling.timeline", "profiling.analysis"))
def test_figures_need_no_page(room):
    pages = ("plotly", "jinja2", "rich", "wandb", "wandb_workspaces")
    for module in modules_of(room):
        assert not [name for name in imports(module) if within(name, *pages)], module


@pytest.mark.parametrize("room", ("profiling.tools", "profiling.launch"))
def test_tools_and_launcher_start_without_torch(room):
    """Start-up needs no torch: what does, as a check of this machine, asks for it in a function."""
    others = ("torch", "triton", "hydra", "model", "data", "training", "train", "sample")
    for module in modules_of(room):
        assert not [name for name in imports(module, False) if within(name, *others)], module


TABLES_OF_CAUSES = ("profiling.shared.advice", "profiling.shared.cpu_verdicts")


@pytest.mark.parametrize(
    "module",
    (
        "configs.backends",
        "configs.optimizers",
        "profiling.shared.advice",
        "profiling.shared.causes",
        "profiling.shared.cpu_verdicts",
        "profiling.shared.hardware",
    ),
)
def test_tables_import_only_the_standard_library(module):
    others = {name for name in imports(module) if not within(name, *TABLES_OF_CAUSES)}
    assert {name.split(".")[0] for name in others} <= sys.stdlib_module_names


def test_the_schema_needs_the_standard_library_and_the_command_line():
    """Analysis imports it, so nothing that it leads to may need more."""
    reached, waiting = set(), {"configs.schema"}
    while waiting:
        reached |= waiting
        waiting = {name for module in waiting for name in imports(module)} & set(SOURCES) - reached
    foreign = {name.split(".")[0] for module in reached for name in imports(module)}
    assert foreign <= sys.stdlib_module_names | {"cli", "configs", "_typeshed"}


def test_the_command_line_needs_the_standard_library_and_itself():
    others = {name.split(".")[0] for module in modules_of("cli") for name in imports(module)}
    assert others <= sys.stdlib_module_names | {"cli", "_typeshed"}


def test_the_hook_needs_the_standard_library_and_torch():
    """No package of ours may be importable in a program of others."""
    for path in HOOK.rglob("*.py"):
        for node in statements(ast.parse(path.read_text("utf-8")), True):
            one = [node.module] if isinstance(node, ast.ImportFrom) else []
            names = one or [alias.name for alias in node.names]
            roots = {str(name).split(".")[0] for name in names}
            assert roots <= sys.stdlib_module_names | {"torch", HOOK_PACKAGE}, path.name
    seen = {path.parent.name for path in HOOK.rglob("*.py")}
    assert seen == {HOOK.name, HOOK_PACKAGE}


def test_the_model_has_no_line_about_profiling():
    assert not [name for name in imports("model") if within(name, "profiling", "nvtx")]
    assert "profil" not in SOURCES["model"].read_text("utf-8").lower()


def test_one_function_makes_every_model():
    makers = [m for m in SOURCES if re.search(r"(?<!class )\bGPT\(", SOURCES[m].read_text("utf-8"))]
    assert makers == ["kernels.fused_model"]
    assert "fused" not in SOURCES["model"].read_text("utf-8")


def test_no_test_imports_another():
    """Code that tests share lies in helpers/ or soak/, the programs that pretend in fakes/."""
    shared = ("tests.helpers", "tests.fakes", "tests.paths", "tests.goldens", "tests.soak")
    for path in (PROJECT / "tests").rglob("*.py"):
        for name in re.findall(r"^\s*(?:from|import) (tests\S*)", path.read_text("utf-8"), re.M):
            assert within(name, *shared), f"{path.name} imports {name}"


def test_every_imported_package_is_required():
    """Packages of pyproject.toml alone count: one imported nowhere may be meant for a reader."""
    trackers = ("tensorboard", "trackio", "mlflow")
    optional = {f"training.metrics.{name}": name for name in trackers}  # module -> extra it needs
    triton = ("profiling.lab.square_triton",)
    in_triton = re.compile(r"kernels\.([a-z_.]+\.)?(\w+_(triton|gluon)|in_(triton|gluon)\w*)")
    triton += tuple(name for name in SOURCES if in_triton.fullmatch(name))
    optional |= dict.fromkeys(triton, "dev")  # on a GPU torch brings it
    optional |= dict.fromkeys(("data.text_blocks", "data.download"), "parquet")
    optional |= dict.fromkeys(("profiling.verbs.mcp", "validation.agent"), "agent")
    browsing = ("axe", "browser", "page_measuring", "page_questions", "pages")
    optional |= {f"validation.{name}": "dev" for name in browsing}
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    foreign = {"PIL", "timm", "torchvision", "transformers"}  # of programs that are captured
    frameworks = {"accelerate", "cupy", "cupyx", "deepspeed", "gpytorch", "jax", "numpyro"}
    frameworks |= {"pytorch_lightning", "torch_geometric", "torchdiffeq", "transformers"}
    frameworks |= {"botorch", "diffrax", "diffusers", "e3nn", "equinox", "flax", "optax", "peft"}
    frameworks |= {"h5py", "networkx", "numba", "onnx", "onnxruntime", "scipy"}
    frameworks |= {"chex", "cuda", "cv2", "lightning", "pandas", "pyarrow", "skimage", "sklearn"}
    frameworks |= {"matplotlib", "sentence_transformers", "torchaudio", "torchmetrics", "triton"}
    frameworks |= foreign
    distributions = {"hydra": "hydra-core", "yaml": "pyyaml"}
    distributions |= {"markupsafe": "jinja2", "pynvml": "nvidia-ml-py"}
    distributions |= {"wandb_workspaces": "wandb-workspaces"}
    for module in SOURCES:
        extra = extras.get(optional.get(module), [])
        lines = [*project["dependencies"], *extras["train"], *extras["wandb"], *extra]
        names = {re.split(r"[^\w.-]", line)[0] for line in lines}
        for name in {name.split(".")[0] for name in imports(module)}:
            if name in sys.stdlib_module_names or name in {m.split(".")[0] for m in SOURCES}:
                continue
            of_others = ("validation.foreign_programs", "validation.memory_programs")
            if any(within(module, each) for each in of_others) and name in foreign:
                continue
            programs = ("validation.framework_programs", "validation.any_programs")
            programs += ("validation.recorded_memory", "validation.rank_programs")
            if any(within(module, folder) for folder in programs) and name in frameworks:
                continue
            if (module, name) == ("validation.hta_shares", "hta"):  # a script for another Python
                continue
            assert distributions.get(name, name) in names, f"{module} imports {name}"


def test_requirements_that_keep_an_installation_from_breaking():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "<3.14" in project["requires-python"]  # Hydra 1.3 does not start there
    train = project["optional-dependencies"]["train"]
    bounds = dict(re.match(r"([\w.-]+)(.*)", line).groups() for line in train)
    assert "<2.4" in bounds["omegaconf"]  # or pip falls back to an old Hydra
    assert ">=1.3.7" in bounds["hydra-core"] and "<1.4" in bounds["hydra-core"]
    assert ">=2.6" in bounds["torch"]
