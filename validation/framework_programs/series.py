"""Two series of programs of many frameworks: what is planted in each, and what may be said."""

from dataclasses import dataclass, field

GPU = "gpu_compute,gpu_memory,gpu_latency"
# module of the programs -> (its framework, the packages that it imports)
FRAMEWORKS = {
    "plain": ("PyTorch", "torch"),
    "with_lightning": ("Lightning", "pytorch-lightning"),
    "with_hf_trainer": ("HF Trainer", "transformers accelerate"),
    "with_accelerate": ("accelerate", "accelerate"),
    "with_geometric": ("torch-geometric", "torch-geometric"),
    "with_torchdiffeq": ("torchdiffeq", "torchdiffeq"),
    "with_gpytorch": ("GPyTorch", "gpytorch"),
    "with_jax": ("JAX", "jax"),
    "with_numpyro": ("NumPyro", "numpyro"),
    "with_cupy": ("CuPy", "cupy-cuda13x"),
    "seventh.plain_host": ("PyTorch", "torch"),
    "seventh.plain_gpu": ("PyTorch", "torch"),
    "seventh.with_torchvision": ("torchvision", "torchvision"),
    "seventh.with_timm": ("timm", "timm"),
    "seventh.with_transformers": ("transformers", "transformers"),
    "seventh.with_peft": ("PEFT", "peft transformers"),
    "seventh.with_sentences": ("sentence-transformers", "sentence-transformers transformers"),
    "seventh.with_torchaudio": ("torchaudio", "torchaudio torchmetrics"),
    "seventh.with_botorch": ("BoTorch", "botorch"),
    "seventh.with_e3nn": ("e3nn", "e3nn"),
    "seventh.with_triton": ("Triton", "triton"),
    "seventh.with_flax": ("Flax", "flax optax jax"),
    "seventh.with_equinox": ("Equinox", "equinox diffrax jax"),
    "seventh.with_cupy": ("CuPy", "cupy-cuda13x"),
}
OF_JAX = ("with_jax", "with_numpyro", "seventh.with_flax", "seventh.with_equinox")
OWN_PROFILERS: dict[str, str | None] = {
    **dict.fromkeys(OF_JAX, "jax.profiler"),
    **dict.fromkeys(("with_cupy", "seventh.with_cupy")),
}


@dataclass(frozen=True)
class Program:
    """A program of a series; its name is that of its function in the module."""

    module: str
    name: str
    planted: str  # the verdict that is right; of a control, which has no fault, its own bound
    debatable: str = ""  # verdicts that can be argued for, by comma; written before any capture
    control: bool = False
    work_without: float = 1  # work of a step without the fault, in steps with the fault
    steps: int = 12  # of a capture
    settle: int = 5  # steps before each timed block: what workers had prepared is then used up
    environ: dict[str, str] = field(default_factory=dict)  # of the process with the fault

    @property
    def framework(self) -> str:
        return FRAMEWORKS[self.module][0]

    @property
    def own_profiler(self) -> str | None:
        """The profiler of the program's framework; None: it has none that writes a trace."""
        return OWN_PROFILERS.get(self.module, "torch.profiler")


SIXTH = (
    Program(
        "plain", "plain_blocks", "synchronization", "launch", environ={"CUDA_LAUNCH_BLOCKING": "1"}
    ),
    Program("plain", "plain_channels_first", "gpu_memory", "gpu_compute"),
    Program("plain", "plain_second_thread", "cpu", "launch"),
    Program("plain", "plain_gridworld", "cpu", "data"),
    Program("plain", "plain_control", "gpu_compute", GPU, control=True),
    Program("with_lightning", "lightning_spectrograms", "data", settle=12),
    Program("with_lightning", "lightning_checkpoints", "cpu", "copies,synchronization"),
    Program("with_lightning", "lightning_control", "gpu_compute", GPU, control=True),
    Program("with_hf_trainer", "hf_corrupts_spans", "data"),
    Program("with_hf_trainer", "hf_writes_statistics", "cpu"),
    Program("with_hf_trainer", "hf_float32", "gpu_compute"),
    Program("with_accelerate", "accelerate_collects_garbage", "cpu"),
    Program("with_accelerate", "accelerate_evaluates", "synchronization", "launch"),
    Program("with_geometric", "geometric_moves_graph", "copies"),
    Program("with_geometric", "geometric_control", "gpu_memory", GPU, control=True),
    Program("with_torchdiffeq", "ode_few_trajectories", "launch", "cpu", work_without=4096 / 16),
    Program("with_torchdiffeq", "ode_doubles", "gpu_compute"),
    Program("with_gpytorch", "gp_empties_cache", "allocation"),
    Program("with_gpytorch", "gp_control", "gpu_compute", GPU, control=True),
    Program("with_jax", "jax_reads_losses", "synchronization", "launch", steps=40),
    Program("with_jax", "jax_recompiles", "cpu", steps=6, settle=0),
    Program("with_jax", "jax_arrays_of_host", "copies", "data"),
    Program("with_jax", "jax_small_scan", "gpu_latency", "launch,gpu_gaps", work_without=128),
    Program("with_jax", "jax_without_jit", "launch", "cpu"),
    Program("with_jax", "jax_control", "gpu_compute", GPU, control=True),
    Program(
        "with_numpyro",
        "numpyro_doubles",
        "gpu_memory",
        "gpu_compute",
        environ={"JAX_ENABLE_X64": "1"},
    ),
    Program("with_cupy", "cupy_one_by_one", "gpu_memory"),
    Program("with_cupy", "cupy_checks_residual", "synchronization", "launch"),
    Program("with_cupy", "cupy_frees_pool", "allocation"),
    Program("with_cupy", "cupy_control", "gpu_compute", GPU, control=True),
)

SEVENTH = (
    Program("seventh.plain_host", "plain_table_rows", "data", "cpu"),
    Program("seventh.plain_host", "plain_replay", "cpu", "data"),
    Program("seventh.plain_host", "plain_experts", "synchronization", "launch", steps=6),
    Program("seventh.plain_host", "plain_saves_on_cpu", "copies", "synchronization"),
    Program(
        "seventh.plain_host",
        "plain_no_caching",
        "allocation",
        "synchronization",
        environ={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    ),
    Program("seventh.plain_host", "plain_physics", "launch", "cpu,gpu_latency", control=True),
    Program("seventh.plain_gpu", "plain_formulas", "gpu_memory", "gpu_compute"),
    Program("seventh.plain_gpu", "plain_lstm", "gpu_latency", "launch,gpu_gaps", work_without=64),
    Program("seventh.plain_gpu", "plain_graph", "gpu_latency", "launch,gpu_gaps", work_without=256),
    Program("seventh.plain_gpu", "plain_decode", "gpu_memory", control=True),
    Program("seventh.with_torchvision", "vision_decodes", "data", settle=12),
    Program("seventh.with_torchvision", "vision_floats", "copies", "data"),
    Program("seventh.with_torchvision", "vision_reproducible", "gpu_compute", "gpu_memory"),
    Program("seventh.with_timm", "timm_checks_numbers", "synchronization", "launch"),
    Program("seventh.with_timm", "timm_control", "gpu_compute", "gpu_memory", control=True),
    Program("seventh.with_transformers", "lm_eager_attention", "gpu_memory", "gpu_compute"),
    Program("seventh.with_transformers", "lm_without_cache", "gpu_compute", "gpu_memory", steps=6),
    Program("seventh.with_transformers", "lm_one_by_one", "launch", "cpu,gpu_latency"),
    Program("seventh.with_peft", "lora_apart", "launch", "cpu,gpu_latency"),
    Program("seventh.with_peft", "lora_control", "gpu_compute", "gpu_memory", control=True),
    Program("seventh.with_sentences", "sentences_tokenized", "data", "cpu"),
    Program("seventh.with_sentences", "sentences_home", "copies", "synchronization"),
    Program("seventh.with_sentences", "sentences_padded", "gpu_compute", "gpu_memory"),
    Program("seventh.with_torchaudio", "audio_character_errors", "cpu", "synchronization"),
    Program("seventh.with_botorch", "botorch_candidates", "launch", "cpu,gpu_latency"),
    Program("seventh.with_e3nn", "e3nn_control", "gpu_memory", "gpu_compute", control=True),
    Program("seventh.with_triton", "triton_few_blocks", "gpu_latency", "gpu_memory"),
    Program("seventh.with_flax", "flax_waits", "synchronization", "launch", steps=40),
    Program("seventh.with_flax", "flax_histograms", "cpu", "copies,synchronization"),
    Program(
        "seventh.with_flax",
        "flax_platform_allocator",
        "allocation",
        "synchronization",
        environ={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
    ),
    Program("seventh.with_equinox", "equinox_recompiles", "cpu", steps=6, settle=0),
    Program("seventh.with_equinox", "diffrax_control", "gpu_compute", "gpu_memory", control=True),
    Program("seventh.with_cupy", "cupy_conjugate_gradients", "synchronization", "launch"),
    Program("seventh.with_cupy", "cupy_without_pool", "allocation", "synchronization"),
)
SERIES = {6: SIXTH, 7: SEVENTH}
PROGRAMS = (*SIXTH, *SEVENTH)
