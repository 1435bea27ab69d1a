"""Tell the program's own code from that of libraries, by the names of files in frames.

Kineto calls a frame FILE(LINE): FUNCTION. FILE is relative to the folder of Python's path in which
it lies, so that a library begins with its package: torch/nn/functional.py. LINE is where the
function begins, or where it was when capturing began. A memory snapshot has whole paths.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.+)")
# packages that a program uses, next to which its own files lie
LIBRARIES = re.compile(
    "torch(vision|audio|text|ao|metrics)?|functorch|triton|numpy|scipy|pandas|sympy|PIL|einops|"
    "transformers|tokenizers|safetensors|diffusers|accelerate|datasets|peft|trl|timm|deepspeed|"
    "(pytorch_)?lightning(_fabric|_utilities)?|apex|flash_attn|flashinfer|xformers|bitsandbytes|"
    "transformer_engine|jax|flax|tqdm|wandb|hydra|omegaconf|IPython|ipykernel|typing_extensions|"
    "pluggy|_?pytest"
)
# folders of Python itself, parts of torch in any folder, and what torch.compile wrote
ELSEWHERE = re.compile(
    r"(?:^|/)(?:lib(?:64)?/python3[^/]*/|_profiling_attach/|c[a-z2-7]{51}\.py$|torchinductor_|"
    r"torch/(?:nn|optim|autograd|cuda|utils|distributed|amp|_\w+|functional\.py))|^<(?!ipython)"
)
INSTALLED = re.compile(r"(?:.*/)?(?:site|dist)-packages/")
# of an installed trainer, whose files lie in the same package as the tool's code
TRAINERS = re.compile(r"profiling/(?:(?:kernels|training|data)/|(?:model|train)\.py)")
STEP = "training/step/step.py"  # tells that the program is this trainer


@dataclass(frozen=True)
class Frame:
    """A Python function, as a capture names it."""

    file: str
    line: int
    function: str

    @property
    def is_own(self) -> bool:
        return is_own_file(self.file)


@cache
def is_own_file(file: str) -> bool:
    """Whether it is code of the program itself, not of a library, Python or the tool.

    `file` is a path, whole or relative to a folder of Python's path.
    """
    file = file.replace("\\", "/")
    inside = INSTALLED.sub("", file)
    if TRAINERS.match(inside):
        return True
    if inside != file or ELSEWHERE.search(file):
        return False
    package = file.partition("/")[0].removesuffix(".py")
    return not (
        package == "profiling" or LIBRARIES.fullmatch(package) or package in sys.stdlib_module_names
    )


def own_files(files: Iterable[str]) -> Callable[[str], bool]:
    """Whether a file is code of the program itself, in a capture that names these files.

    Of this trainer, whose step is among them then, the kernels are no such code, because a line of
    its model that calls one says more, nor is the tool beside it.
    """
    folders = [file.removesuffix(STEP) for file in files if f"/{file}".endswith(f"/{STEP}")]
    others = tuple(f"{folder}{name}/" for folder in folders for name in ("kernels", "profiling"))
    return lambda file: is_own_file(file) and not file.startswith(others)


def frame_named(name: str) -> Frame | None:
    """The frame of this name, or None for a built-in function and a module."""
    found = FRAME.fullmatch(name)
    if found is None:
        return None
    return Frame(found["file"].replace("\\", "/"), int(found["line"]), found["function"])


def own_frames(names: Sequence[str]) -> Callable[[str], bool]:
    """Whether a name is a frame of the program itself, in a capture with these names."""
    frames = {name: frame for name in names if (frame := frame_named(name))}
    is_own = own_files({frame.file for frame in frames.values()})
    return lambda name: name in frames and is_own(frames[name].file)
