"""Tell the program's own code from that of libraries, by the names that Kineto gives to frames.

A frame is called FILE(LINE): FUNCTION. FILE is relative to the folder of Python's path in which it
lies, so that a library begins with its package: torch/nn/functional.py. LINE is where the function
begins, or where it was when capturing began.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.+)")
# packages that a program uses, next to which its own files lie
LIBRARIES = re.compile(
    "torch(vision|audio|text|ao|metrics)?|functorch|triton|numpy|scipy|pandas|sympy|PIL|einops|"
    "transformers|tokenizers|safetensors|diffusers|accelerate|datasets|peft|trl|timm|deepspeed|"
    "(pytorch_)?lightning(_fabric|_utilities)?|apex|flash_attn|flashinfer|xformers|bitsandbytes|"
    "transformer_engine|jax|flax|tqdm|wandb|hydra|omegaconf|IPython|ipykernel|typing_extensions|"
    "pluggy|_?pytest"
)
# folders of installed packages, of Python itself, and of what torch.compile wrote
ELSEWHERE = re.compile(
    r"(?:^|/)(?:(?:site-packages|dist-packages|lib(?:64)?/python3[^/]*)/|c[a-z2-7]{51}\.py$)"
)
# the tool's code; with an installed trainer its files lie in the same package
OURS = re.compile(
    r"_profiling_attach/|profiling/(?!(?:kernels|training|data)/|(?:model|train)\.py)"
)

PLACES = ("", "profiling/")  # of the trainer's modules: of a checkout, and installed
TRAINER = tuple(f"{place}training/step/step.py(" for place in PLACES)
KERNELS = tuple(f"{place}kernels/" for place in PLACES)


@dataclass(frozen=True)
class Frame:
    """A Python function, as a capture names it."""

    file: str
    line: int
    function: str

    @cached_property
    def is_own(self) -> bool:
        """Whether it is code of the program itself, not of a library, Python or the tool."""
        if self.file.startswith("<") or ELSEWHERE.search(self.file) or OURS.match(self.file):
            return False
        package = self.file.partition("/")[0].removesuffix(".py")
        return not LIBRARIES.fullmatch(package) and package not in sys.stdlib_module_names


def frame_named(name: str) -> Frame | None:
    """The frame of this name, or None for a built-in function and a module."""
    found = FRAME.fullmatch(name)
    if found is None:
        return None
    return Frame(found["file"].replace("\\", "/"), int(found["line"]), found["function"])


def own_frames(names: Sequence[str]) -> Callable[[str], bool]:
    """Whether a name is a frame of the program itself, in a capture with these names.

    Of this trainer, whose step is among them then, the kernels are no such code: a line of its
    model that calls one says more.
    """
    of_trainer = any(name.startswith(TRAINER) for name in names)

    def is_own(name: str) -> bool:
        if of_trainer and name.startswith(KERNELS):
            return False
        frame = frame_named(name)
        return frame is not None and frame.is_own

    return is_own
