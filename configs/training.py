"""The keys of a run: where it writes, how often it evaluates, how it optimises, on what device."""

import os
import re
from dataclasses import dataclass

from cli.keys import key
from configs import optimizers
from configs.model import GPT2_SIZES

WEIGHTS_HELP = (
    "GPT-2's weights for init_from: a .safetensors file, or a folder with model.safetensors"
)


@dataclass
class TrainingConfig:
    """Flat keys of training, under nanoGPT's names; `configs.Config` inherits them."""

    out_dir: str = key(
        "out-shakespeare-char",
        "folder of the run, for config, metrics and checkpoint",
        role="place",
        path=True,
    )
    keep_previous: str = key(
        "all",
        "how many earlier runs of out_dir to keep, as out_dir/previous-N: all, a number (of the "
        "newest runs; 0: none), or refuse (do not start if out_dir has a run)",
        role="place",
    )
    init_from: str = key(
        "scratch",
        "scratch, or resume from out_dir/ckpt.pt (unless out_dir is given, it is the folder of "
        "the config.yaml, if a checkpoint is there too); gpt2, gpt2_medium, ...: these weights, "
        "from Hugging Face's cache or `weights`, and their shape; weights: the file or folder in "
        "`weights`, of any shape",
        ("scratch", "resume", *GPT2_SIZES, "weights"),
        role="start",
    )
    go_on: bool = key(
        False,
        "resume if out_dir has a checkpoint, whatever init_from says: for jobs that are "
        "restarted, for example by torchrun --max-restarts or Slurm's --requeue",
        role="start",
    )
    weights: str | None = key(None, WEIGHTS_HELP, role="start", path=True)
    exact_resume: bool = key(
        True,
        "on resume, keep seed, dropout, dtype, residual_dtype and the sequences per iteration; "
        "false: they may change",
        role="start",
    )
    max_iters: int = key(
        5000, "total number of iterations (optimizer steps)", least=0, below=2**63, role="outcome"
    )
    eval_interval: int = key(250, "iterations between evaluations", least=1, role="outcome")
    eval_iters: int = key(
        0,
        "0: exact loss over the whole validation split; N: mean over N random batches, as in "
        "nanoGPT",
        least=0,
        role="outcome",
    )
    eval_only: bool = key(False, "evaluate once and stop", role="start")
    log_interval: int = key(10, "iterations between logged lines", least=1, role="watching")
    always_save_checkpoint: bool = key(
        False,
        "save after each evaluation, even if the validation loss did not improve",
        role="watching",
    )
    checkpoint_interval_s: float | None = key(
        None,
        "seconds between checkpoints (ckpt.pt), also between evaluations, so that a kill costs "
        "no more time than this; null: 60 on a CPU, else 600; 0: only at evaluations",
        least=0,
        role="watching",
    )
    gradient_accumulation_steps: int = key(
        1, "micro-batches per iteration, summed over all ranks", least=1, role="work"
    )
    optimizer: str = key(
        "adamw",
        optimizers.HELP,
        tuple(optimizers.OPTIMIZERS),
        role="model",
        before="adamw",
    )
    learning_rate: float = key(1e-3, "peak learning rate", least=0, role="outcome")
    decay_lr: bool = key(True, "warm up the learning rate, then decay it", role="outcome")
    lr_decay: str = key("cosine", "curve of the decay", ("cosine", "linear"), role="outcome")
    warmup_iters: int = key(100, "iterations of linear warm-up", least=0, role="outcome")
    lr_decay_iters: int = key(5000, "iteration at which min_lr is reached", least=0, role="outcome")
    min_lr: float = key(1e-4, "learning rate after the decay", least=0, role="outcome")
    weight_decay: float = key(
        0.1, "weight decay of matrices and embeddings", least=0, role="outcome"
    )
    beta1: float = key(0.9, "beta1 of AdamW", least=0, below=1, role="outcome")
    beta2: float = key(0.99, "beta2 of AdamW", least=0, below=1, role="outcome")
    grad_clip: float = key(1.0, "maximum gradient norm; 0: no clipping", least=0, role="outcome")
    seed: int = key(
        1337,
        "seed of weights, dropout and the order of batches",
        least=0,
        below=2**32,
        role="outcome",
    )
    device: str = key("auto", "auto, cpu, cuda, cuda:N or mps", role="speed")
    dtype: str = key(
        "auto",
        "dtype of matrix products and attention; auto: bfloat16 if the GPU supports it",
        ("auto", "float32", "bfloat16", "float16"),
        role="work",
    )
    speed: str = key(
        "fast",
        "sets kernels and compile unless they are given; reference: plain PyTorch; compiled: "
        "torch.compile; fast: our own kernels where they are proved, torch.compile for the rest",
        ("reference", "compiled", "fast"),
        role="start",
        before="fast",
    )
    compile: bool | None = key(
        None,
        "torch.compile the model; null: set by speed; with speed=fast only if kernels=fused does "
        "not run or leaves work for the compiler (attention=slow)",
        role="speed",
        follows="kernels",
    )
    compile_scope: str = key(
        "auto",
        "unit of compilation: block (starts sooner), model (fewer launches); auto: block with "
        "CUDA graphs, where fewer launches do not help, else model",
        ("auto", "block", "model"),
        role="speed",
        follows="compile",
        tuning=True,
    )
    compile_cache: str = key(
        "~/.cache/profiling-nanogpt/compiled",
        "folder that keeps compiled code for the next start; default: TORCHINDUCTOR_CACHE_DIR, "
        "or ~/.cache/profiling-nanogpt/compiled",
        variable="TORCHINDUCTOR_CACHE_DIR",
        role="place",
        path=True,
    )
    cuda_graphs: str = key(
        "auto",
        "replay forward, backward, optimizer and evaluation as CUDA graphs; auto: on CUDA with "
        "compile or kernels=fused, but not in float16 and not if weights or activations are "
        "freed and recreated (parallel=fsdp, activation_checkpointing)",
        ("auto", "true", "false"),
        role="speed",
        follows="compile",
    )
    parallel: str = key(
        "auto",
        "how several ranks share the run: ddp (each has the whole model), fsdp (each has a share "
        "of weights, gradients and moments), hsdp (fsdp within groups of ranks, ddp between "
        "groups); auto: ddp",
        ("auto", "ddp", "fsdp", "hsdp"),
        role="speed",
    )
    shard_ranks: int | None = key(
        None,
        "for hsdp: number of ranks that share one copy of the model; null: all ranks of a host",
        least=1,
        role="speed",
        tuning=True,
    )
    bucket_mb: float = key(
        25.0,
        "for ddp: MiB of gradients that are averaged at once while more gradients are computed",
        least=1,
        below=1_000_000,  # which no model fills; PyTorch counts bytes in 64 bits
        role="speed",
        tuning=True,
    )
    all_reduce: str = key(
        "auto",
        "how ddp averages gradients: collective (of NCCL or gloo), copies (by the copy engines "
        "of the GPUs of one host, which leaves the multiprocessors to backward); auto: copies on "
        "2 or 4 Hopper GPUs with NVLink, for models from the size of GPT-2 124M",
        ("auto", "collective", "copies"),
        role="speed",
        tuning=True,
    )
    shard_update: bool | None = key(
        None,
        "for ddp with kernels=fused: each rank updates its part of the weights and sends 16-bit "
        "copies of them to the others instead of averaged gradients (ZeRO, stage 1); null: on "
        "where all_reduce=auto would choose copies, if gradients are averaged by copies",
        role="speed",
        tuning=True,
    )
    reduce_dtype: str = key(
        "float32",
        "for shard_update with one micro-step per rank: dtype of the gradients that ranks send "
        "each other; bfloat16 halves the bytes that are written, sent and read",
        ("float32", "bfloat16"),
        role="speed",
        tuning=True,
    )
    activation_checkpointing: str = key(
        "none",
        "what backward recomputes to save memory: none, selective (a block without its matrix "
        "products and attention), full (the whole block)",
        ("none", "selective", "full"),
        role="speed",
    )

    tensorboard: bool = key(
        False, "also write the metrics for TensorBoard, in out_dir", role="watching"
    )
    trackio: bool = key(
        False, "also log the run in Trackio, in the project wandb.project", role="watching"
    )
    mlflow: bool = key(
        False, "also log the run in MLflow, in the experiment wandb.project", role="watching"
    )

    def __post_init__(self) -> None:
        check_weights(self.init_from, self.weights)
        if not self.out_dir:
            raise ValueError("out_dir: must not be empty")
        if not self.compile_cache:
            raise ValueError("compile_cache: must not be empty")
        self.out_dir = os.path.expanduser(self.out_dir)  # YAML and some shells leave a ~
        if not re.fullmatch(r"all|refuse|\d{1,18}", self.keep_previous, re.ASCII):
            raise ValueError(
                f"keep_previous={self.keep_previous}: must be all, refuse or a number of at least 0"
            )
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,6})?|mps", self.device):
            raise ValueError(f"device={self.device}: must be auto, cpu, cuda, cuda:N or mps")
        if self.cuda_graphs == "true" and self.device in ("cpu", "mps"):
            raise ValueError(
                f"cuda_graphs=true: device={self.device} has no CUDA graphs; use cuda_graphs=auto"
            )
        if self.decay_lr:
            self._check_schedule()

    def _check_schedule(self) -> None:
        if self.min_lr > self.learning_rate:
            raise ValueError(
                f"min_lr={self.min_lr}: is above learning_rate={self.learning_rate}; also set "
                "min_lr (usually a tenth of it), or decay_lr=false"
            )
        # a run that ends during its warm-up never reaches the decay
        if self.max_iters >= self.warmup_iters >= self.lr_decay_iters:
            raise ValueError(
                f"lr_decay_iters={self.lr_decay_iters}: must be above "
                f"warmup_iters={self.warmup_iters}; set one of them, or decay_lr=false"
            )


def check_weights(init_from: str, weights: str | None) -> None:
    """Raise ValueError if init_from=weights names no weights."""
    if init_from == "weights" and not weights:
        raise ValueError("init_from=weights: name the weights with weights=PATH")


@dataclass
class WandbConfig:
    """Keys of section `wandb`: the mirror of metrics.jsonl in Weights & Biases."""

    mode: str = key(
        "auto",
        "auto: online if there is an API key, else offline",
        ("auto", "online", "offline", "disabled"),
    )
    project: str = key(
        "profiling-nanogpt", "W&B project; default: WANDB_PROJECT", variable="WANDB_PROJECT"
    )
    entity: str | None = key(
        None, "user or team; default: WANDB_ENTITY, or your own user", variable="WANDB_ENTITY"
    )
    name: str | None = key(
        None,
        "run name; default: WANDB_NAME, or a name made from the run's keys; -m adds the varied "
        "keys",
        variable="WANDB_NAME",
    )
    group: str | None = key(
        None,
        "group shared by the runs of one comparison; default: WANDB_RUN_GROUP; -m sets it",
        variable="WANDB_RUN_GROUP",
    )
    tags: list[str] = key([], "W&B tags, such as [a,b]; default: WANDB_TAGS", variable="WANDB_TAGS")
    notes: str | None = key(
        None, "notes on the purpose of the run; default: WANDB_NOTES", variable="WANDB_NOTES"
    )
    alerts: bool = key(
        True,
        "send a W&B alert for numbers that are not finite, ranks that the others wait for, and a "
        "GPU's clock that power or heat holds down; W&B sends it on as your settings there say",
    )
    checkpoints: bool = key(
        False,
        "upload the best checkpoint as an artifact when the run ends; it contains the run's "
        "keys, including out_dir and data_source",
    )
    captures: bool = key(
        False,
        "add the newest capture and its report when the run ends, as `python -m profiling log` "
        "does: from a copy without environment, user, host and folders",
    )
    registry: str | None = key(
        None,
        "also link these artifacts to this registry of W&B, in the collection of their name",
    )

    def __post_init__(self) -> None:
        # W&B's own rules: if broken, the run would lose its mirror after the start
        if not 1 <= len(self.project) <= 128 or set(self.project) & set("/\\#?%:"):
            raise ValueError(
                f"wandb.project={self.project}: must be 1 to 128 characters without / \\ # ? % :"
            )
        if self.registry is not None and not re.fullmatch(r"[\w .-]+", self.registry):
            raise ValueError(
                f"wandb.registry={self.registry}: must be a registry's name alone, such as model"
            )
        for tag in self.tags:
            if not 1 <= len(tag) <= 64:
                raise ValueError(f"wandb.tags: '{tag}' must be 1 to 64 characters")
