"""The whole configuration of train.py as one typed object.

configs.compose makes it from defaults, a YAML file and the command line. train.py passes it to
functions that each declare the section they need; flat sections are base classes of this one.
"""

from dataclasses import dataclass, field

from cli.keys import check_values
from configs.capture import GpuMetricsConfig, ProfileConfig
from configs.data import DataConfig
from configs.model import ModelConfig
from configs.training import TrainingConfig, WandbConfig


# dataclasses list the fields of the last base first: the model's keys are printed first
@dataclass
class Config(TrainingConfig, DataConfig, ModelConfig):
    """All keys, flat as in nanoGPT, but for the sections at the end."""

    profile: ProfileConfig = field(default_factory=ProfileConfig)
    gpu_metrics: GpuMetricsConfig = field(default_factory=GpuMetricsConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)

    def __post_init__(self) -> None:
        check_values(self)  # before the sections: it also restores words read as booleans
        ModelConfig.__post_init__(self)
        TrainingConfig.__post_init__(self)
        self.profile.check_run(
            self.max_iters, self.eval_interval, bool(self.compile), self.cuda_graphs == "true"
        )
