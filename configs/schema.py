"""The whole configuration of train.py as one typed object.

configs.compose makes it from defaults, a YAML file and the command line. train.py passes it to
functions that each declare the section they need; flat sections are base classes of this one.
"""

from dataclasses import dataclass

from cli.keys import Role, Value, check_values, keys, section
from configs.data import DataConfig
from configs.model import ModelConfig
from configs.profiling import GpuMetricsConfig, ProfileConfig
from configs.training import TrainingConfig, WandbConfig


# dataclasses list the fields of the last base first: the model's keys are printed first
@dataclass
class Config(TrainingConfig, DataConfig, ModelConfig):
    """All keys, flat as in nanoGPT, but for the sections at the end."""

    profile: ProfileConfig = section(ProfileConfig, role="watching")
    gpu_metrics: GpuMetricsConfig = section(GpuMetricsConfig, role="watching")
    wandb: WandbConfig = section(WandbConfig, role="place")

    def __post_init__(self) -> None:
        check_values(self)  # before the sections: it also restores words read as booleans
        ModelConfig.__post_init__(self)
        TrainingConfig.__post_init__(self)
        self.profile.check_run(
            self.max_iters, self.eval_interval, bool(self.compile), self.cuda_graphs == "true"
        )


ROLES = {name.partition(".")[0]: key.role for name, key in keys(Config).items()}
# values of runs that are older than the keys
BEFORE: dict[str, Value] = {
    name: key.before for name, key in keys(Config).items() if key.before is not None
}


def role_of(name: str) -> Role | None:
    """Role of a key, or of a section; None for a name that is, or was, something else."""
    return ROLES.get(name.partition(".")[0])
