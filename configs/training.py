"""The keys of a run: where it writes, how often it looks, how it optimises and on what device."""

import math
import re
from dataclasses import dataclass, field


@dataclass
class TrainingConfig:
    """Flat keys of the configuration, under nanoGPT's names; `configs.Config` inherits them."""

    out_dir: str = field(
        default="out-shakespeare-char",
        metadata={"help": "the run's folder: config, metrics, checkpoint"},
    )
    init_from: str = field(
        default="scratch",
        metadata={
            "help": "scratch, or resume from out_dir/ckpt.pt",
            "choices": ("scratch", "resume"),
        },
    )
    max_iters: int = field(default=5000, metadata={"help": "iterations (optimizer steps) in all"})
    eval_interval: int = field(default=250, metadata={"help": "iterations between evaluations"})
    eval_iters: int = field(
        default=0,
        metadata={
            "help": "0: exact loss over the whole validation split; "
            "N: mean of N random batches, as in nanoGPT"
        },
    )
    eval_only: bool = field(default=False, metadata={"help": "evaluate once and stop"})
    log_interval: int = field(default=10, metadata={"help": "iterations between logged lines"})
    always_save_checkpoint: bool = field(
        default=False,
        metadata={"help": "save after each evaluation, not only when the validation loss improved"},
    )
    gradient_accumulation_steps: int = field(
        default=1, metadata={"help": "micro-batches in an iteration, over all ranks together"}
    )
    learning_rate: float = field(default=1e-3, metadata={"help": "peak learning rate"})
    decay_lr: bool = field(default=True, metadata={"help": "warm up, then decay with a cosine"})
    warmup_iters: int = field(default=100, metadata={"help": "iterations of linear warm-up"})
    lr_decay_iters: int = field(
        default=5000, metadata={"help": "iteration at which min_lr is reached"}
    )
    min_lr: float = field(default=1e-4, metadata={"help": "learning rate after the decay"})
    weight_decay: float = field(
        default=0.1, metadata={"help": "AdamW's, on matrices and embeddings"}
    )
    beta1: float = field(default=0.9, metadata={"help": "AdamW's"})
    beta2: float = field(default=0.99, metadata={"help": "AdamW's"})
    grad_clip: float = field(
        default=1.0, metadata={"help": "largest gradient norm; 0: no clipping"}
    )
    seed: int = field(
        default=1337, metadata={"help": "of weights, dropout and the order of batches"}
    )
    device: str = field(default="auto", metadata={"help": "auto, cpu, cuda, cuda:N or mps"})
    dtype: str = field(
        default="auto",
        metadata={
            "help": "of matrix products and attention; auto: bfloat16 where the GPU has it",
            "choices": ("auto", "float32", "bfloat16", "float16"),
        },
    )
    compile: bool = field(default=True, metadata={"help": "torch.compile the model"})
    compile_scope: str = field(
        default="auto",
        metadata={
            "help": "what is compiled as one: block (starts sooner), model (fewer launches); "
            "auto: block with CUDA graphs, which need no fewer launches, else model",
            "choices": ("auto", "block", "model"),
        },
    )
    cuda_graphs: str = field(
        default="auto",
        metadata={
            "help": "replay forward, backward and optimizer as CUDA graphs; "
            "auto: on CUDA with compile, not in float16",
            "choices": ("auto", "true", "false"),
        },
    )

    tensorboard: bool = field(
        default=False, metadata={"help": "write the metrics for TensorBoard too, in out_dir"}
    )

    def __post_init__(self) -> None:
        if not self.out_dir:
            raise ValueError("out_dir: must not be empty")
        for key in ("eval_interval", "log_interval", "gradient_accumulation_steps"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}={getattr(self, key)}: must be at least 1")
        for key in ("max_iters", "eval_iters", "warmup_iters", "lr_decay_iters"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key}={getattr(self, key)}: must be at least 0")
        for key in ("learning_rate", "min_lr", "weight_decay", "grad_clip"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"{key}={getattr(self, key)}: must be a number from 0 up")
        for key in ("beta1", "beta2"):
            if not 0 <= getattr(self, key) < 1:
                raise ValueError(f"{key}={getattr(self, key)}: must be at least 0 and less than 1")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed}: must be from 0 to 2**32 - 1")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?|mps", self.device):
            raise ValueError(f"device={self.device}: must be auto, cpu, cuda, cuda:N or mps")
        if self.cuda_graphs == "true" and self.device in ("cpu", "mps"):
            raise ValueError(f"cuda_graphs=true: device={self.device} has none; leave it at auto")
        if self.decay_lr:
            self._check_schedule()

    def _check_schedule(self) -> None:
        if self.min_lr > self.learning_rate:
            raise ValueError(
                f"min_lr={self.min_lr}: above learning_rate={self.learning_rate}; "
                f"set min_lr too (usual: a tenth), or decay_lr=false"
            )
        # a run that ends within its warm-up never comes to the decay
        if self.max_iters >= self.warmup_iters >= self.lr_decay_iters:
            raise ValueError(
                f"lr_decay_iters={self.lr_decay_iters}: must be above "
                f"warmup_iters={self.warmup_iters}; set one of them, or decay_lr=false"
            )


@dataclass
class WandbConfig:
    """Section `wandb`: the mirror of metrics.jsonl in Weights & Biases."""

    mode: str = field(
        default="auto",
        metadata={
            "help": "auto: online with an API key, offline without",
            "choices": ("auto", "online", "offline", "disabled"),
        },
    )
    project: str = field(default="profiling-nanogpt", metadata={"help": "W&B project"})
    name: str | None = field(
        default=None, metadata={"help": "run name; default: from the run's keys"}
    )
    group: str | None = field(
        default=None, metadata={"help": "runs of one comparison share it; -m sets it"}
    )
    tags: list[str] = field(default_factory=list, metadata={"help": "W&B tags, as [a,b]"})

    def __post_init__(self) -> None:
        # W&B's own rules: broken, they would cost the run its mirror after the start
        if not 1 <= len(self.project) <= 128 or set(self.project) & set("/\\#?%:"):
            raise ValueError(
                f"wandb.project={self.project}: must be 1 to 128 characters, none of / \\ # ? % :"
            )
        for tag in self.tags:
            if not 1 <= len(tag) <= 64:
                raise ValueError(f"wandb.tags: '{tag}' must be 1 to 64 characters")
