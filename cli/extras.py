"""The packages of other projects that each part of this one needs, and how to get those of a part.

An installation has the base alone, which reads captures and runs. pyproject.toml has the versions
and the reasons.
"""

from dataclasses import dataclass

from cli.errors import error_exit
from cli.program import NAME, PREFIX


@dataclass(frozen=True)
class Part:
    needs: str  # in a message
    extra: str | None  # of pyproject.toml; None: the base
    modules: dict[str, str]  # name of a module -> the package that has it

    @property
    def cure(self) -> str:
        """The command that installs the packages; a checkout has all of them in one list."""
        name = f"'{NAME}[{self.extra}]'" if self.extra else NAME
        return f"pip install {name}" if PREFIX else "pip install -r requirements.txt"


READING = Part(
    "its base",
    None,
    {
        **{name: name for name in ("numpy", "msgspec", "jinja2", "rich")},
        "yaml": "pyyaml",
        **({} if PREFIX else {"plotly": "plotly"}),  # a wheel has what the pages need of it
    },
)
TRAINING = Part(
    "PyTorch and more",
    "train",
    {
        **{name: name for name in ("torch", "omegaconf", "nvtx")},
        **{name: name for name in ("tiktoken", "tokenizers", "safetensors")},
        "hydra": "hydra-core",
        "pynvml": "nvidia-ml-py",
    },
)
WANDB = Part("W&B", "wandb", {"wandb": "wandb", "wandb_workspaces": "wandb-workspaces"})
PARTS = (READING, TRAINING, WANDB)


def refuse_missing_package(error: ModuleNotFoundError) -> None:
    """Exit with code 2 and one line if the module that is missing is one of PARTS."""
    package = (error.name or "").split(".")[0]
    for part in PARTS:
        if package in part.modules:
            raise error_exit(f"needs {part.needs}: {part.cure}") from None
