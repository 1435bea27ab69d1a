"""A program of a series: its framework, what is planted in it, and what may be said of it."""

from dataclasses import dataclass, field

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
    "eighth.plain_host": ("PyTorch", "torch"),
    "eighth.plain_gpu": ("PyTorch", "torch"),
    "eighth.diffusion": ("PyTorch", "torch"),
    "eighth.with_h5py": ("PyTorch", "torch h5py"),
    "eighth.with_lightning": ("Lightning", "pytorch-lightning"),
    "eighth.with_torchaudio": ("torchaudio", "torchaudio"),
    "eighth.with_onnxruntime": ("ONNX Runtime", "onnxruntime onnx"),
    "eighth.with_torchvision": ("torchvision", "torchvision"),
    "eighth.with_transformers": ("transformers", "transformers"),
    "eighth.with_geometric": ("torch-geometric", "torch-geometric"),
    "eighth.with_jax": ("JAX", "jax"),
    "eighth.with_accelerate": ("accelerate", "accelerate"),
    "eighth.with_cupy": ("CuPy", "cupy-cuda13x"),
    "eighth.with_optax": ("Optax", "optax flax jax"),
    "eighth.with_sentences": ("sentence-transformers", "sentence-transformers transformers"),
    "eighth.with_e3nn": ("e3nn", "e3nn"),
    "eighth.with_peft": ("PEFT", "peft transformers"),
    "eighth.with_gpytorch": ("GPyTorch", "gpytorch"),
    "eighth.with_numba": ("Numba", "numba-cuda"),
    "eighth.with_numpyro": ("NumPyro", "numpyro"),
    "eighth.with_botorch": ("BoTorch", "botorch"),
    "ninth.plain_host": ("PyTorch", "torch scipy"),
    "ninth.plain_gpu": ("PyTorch", "torch"),
    "ninth.with_geometric": ("torch-geometric", "torch-geometric"),
    "ninth.with_lightning": ("Lightning", "pytorch-lightning"),
    "ninth.with_timm": ("timm", "timm"),
    "ninth.with_triton": ("Triton", "triton"),
    "ninth.with_numpyro": ("NumPyro", "numpyro"),
    "ninth.with_jax": ("JAX", "jax"),
    "ninth.with_flax": ("Flax", "flax optax jax"),
    "ninth.with_equinox": ("Equinox", "equinox jax"),
    "ninth.with_cupy": ("CuPy", "cupy-cuda13x"),
    "ninth.with_e3nn": ("e3nn", "e3nn"),
    "ninth.with_torchmetrics": ("torchmetrics", "torchmetrics"),
    "ninth.with_transformers": ("transformers", "transformers"),
    "ninth.with_torchaudio": ("torchaudio", "torchaudio"),
    "ninth.with_sentences": ("sentence-transformers", "sentence-transformers transformers"),
    "ninth.with_torchdiffeq": ("torchdiffeq", "torchdiffeq"),
    "tenth.plain_host": ("PyTorch", "torch"),
    "tenth.plain_gpu": ("PyTorch", "torch"),
    "tenth.with_lightning": ("Lightning", "pytorch-lightning"),
    "tenth.with_accelerate": ("accelerate", "accelerate"),
    "tenth.with_transformers": ("transformers", "transformers"),
    "tenth.with_flax": ("Flax", "flax optax jax"),
    "tenth.with_equinox": ("Equinox", "equinox jax"),
    "tenth.with_geometric": ("torch-geometric", "torch-geometric"),
    "tenth.with_cupy": ("CuPy", "torch cupy-cuda13x"),
    "tenth.with_h5py": ("PyTorch", "torch h5py"),
    "tenth.with_numpyro": ("NumPyro", "numpyro"),
    "tenth.with_diffusers": ("Diffusers", "diffusers"),
    "tenth.with_jax": ("JAX", "jax"),
    "tenth.with_sentences": ("sentence-transformers", "sentence-transformers transformers"),
    "tenth.with_torchaudio": ("torchaudio", "torchaudio"),
    "tenth.with_optax": ("Optax", "optax jax"),
    "tenth.with_torchvision": ("torchvision", "torchvision"),
    "tenth.with_torchdiffeq": ("torchdiffeq", "torchdiffeq"),
    "eleventh.plain_host": ("PyTorch", "torch"),
    "eleventh.plain_gpu": ("PyTorch", "torch"),
    "eleventh.with_torchvision": ("torchvision", "torchvision"),
    "eleventh.with_h5py": ("PyTorch", "torch h5py"),
    "eleventh.with_accelerate": ("accelerate", "accelerate"),
    "eleventh.with_jax": ("JAX", "jax"),
    "eleventh.with_lightning": ("Lightning", "pytorch-lightning"),
    "eleventh.with_torchaudio": ("torchaudio", "torchaudio"),
    "eleventh.with_geometric": ("torch-geometric", "torch-geometric networkx"),
    "eleventh.with_sentences": ("sentence-transformers", "sentence-transformers transformers"),
    "eleventh.with_cupy": ("CuPy", "cupy-cuda13x"),
    "eleventh.with_gpytorch": ("GPyTorch", "gpytorch"),
    "eleventh.with_transformers": ("transformers", "transformers"),
    "eleventh.with_timm": ("timm", "timm"),
    "eleventh.with_torchmetrics": ("torchmetrics", "torchmetrics"),
    "eleventh.with_triton": ("Triton", "triton"),
    "eleventh.with_peft": ("PEFT", "peft transformers"),
    "twelfth.plain_host": ("PyTorch", "torch"),
    "twelfth.plain_gpu": ("PyTorch", "torch"),
    "twelfth.with_pandas": ("PyTorch", "torch pandas"),
    "twelfth.with_opencv": ("PyTorch", "torch torchvision opencv-python-headless"),
    "twelfth.with_pyarrow": ("PyTorch", "torch pyarrow"),
    "twelfth.with_skimage": ("PyTorch", "torch torchmetrics scikit-image"),
    "twelfth.with_transformers": ("transformers", "transformers"),
    "twelfth.with_cuda_core": ("cuda.core", "torch cuda-core"),
    "twelfth.with_jax": ("JAX", "jax"),
    "twelfth.with_lightning": ("Lightning", "pytorch-lightning"),
    "twelfth.with_timm": ("timm", "timm"),
    "twelfth.with_flax": ("Flax", "flax optax jax"),
    "twelfth.with_numba": ("Numba", "numba-cuda"),
    "twelfth.with_chex": ("Chex", "chex jax"),
    "twelfth.with_equinox": ("Equinox", "equinox jax"),
    "twelfth.with_geometric": ("torch-geometric", "torch-geometric"),
    "twelfth.with_torchmetrics": ("torchmetrics", "torchmetrics"),
    "twelfth.with_numpyro": ("NumPyro", "numpyro"),
    "twelfth.with_diffusers": ("Diffusers", "diffusers"),
    "twelfth.with_optax": ("Optax", "optax jax"),
    "twelfth.with_cupy": ("CuPy", "cupy-cuda13x"),
    "twelfth.with_e3nn": ("e3nn", "e3nn"),
    "thirteenth.plain_data": ("PyTorch", "torch"),
    "thirteenth.plain_host": ("PyTorch", "torch"),
    "thirteenth.plain_gpu": ("PyTorch", "torch"),
    "thirteenth.with_hf_trainer": ("HF Trainer", "transformers accelerate tokenizers"),
    "thirteenth.with_lightning": ("Lightning", "pytorch-lightning matplotlib"),
    "thirteenth.with_geometric": ("torch-geometric", "torch-geometric"),
    "thirteenth.with_jax": ("JAX", "jax scipy"),
    "thirteenth.with_diffusers": ("Diffusers", "diffusers"),
    "thirteenth.with_transformers": ("transformers", "transformers"),
    "thirteenth.with_timm": ("timm", "timm"),
    "thirteenth.with_torchvision": ("torchvision", "torchvision"),
    "thirteenth.with_flax": ("Flax", "flax optax jax"),
    "thirteenth.with_sentences": ("sentence-transformers", "sentence-transformers"),
    "thirteenth.with_numpyro": ("NumPyro", "numpyro"),
    "fourteenth.plain_data": ("PyTorch", "torch"),
    "fourteenth.plain_host": ("PyTorch", "torch"),
    "fourteenth.plain_gpu": ("PyTorch", "torch"),
    "fourteenth.with_lightning": ("Lightning", "pytorch-lightning"),
    "fourteenth.with_diffusers": ("Diffusers", "diffusers"),
    "fourteenth.with_timm": ("timm", "timm"),
    "fourteenth.with_hf_trainer": ("HF Trainer", "transformers accelerate tokenizers"),
    "fourteenth.with_flax": ("Flax", "flax jax"),
    "fourteenth.with_transformers": ("transformers", "transformers"),
    "fourteenth.with_optax": ("Optax", "optax jax"),
    "fourteenth.with_jax": ("JAX", "jax"),
    "fourteenth.with_peft": ("PEFT", "peft transformers"),
    "fourteenth.with_accelerate": ("accelerate", "accelerate"),
    "fifteenth.plain_data": ("PyTorch", "torch"),
    "fifteenth.plain_host": ("PyTorch", "torch"),
    "fifteenth.plain_gpu": ("PyTorch", "torch"),
    "fifteenth.with_lightning": ("Lightning", "pytorch-lightning"),
    "fifteenth.with_timm": ("timm", "timm"),
    "fifteenth.with_torchvision": ("torchvision", "torchvision"),
    "fifteenth.with_geometric": ("torch-geometric", "torch-geometric"),
    "fifteenth.with_triton": ("Triton", "triton"),
    "fifteenth.with_transformers": ("transformers", "transformers"),
    "fifteenth.with_jax": ("JAX", "jax"),
    "on_cpu.data": ("PyTorch", "torch"),
    "on_cpu.host": ("PyTorch", "torch"),
    "on_cpu.operators": ("PyTorch", "torch"),
    "on_cpu.second": ("PyTorch", "torch tensorboard"),
    "on_cpu.third": ("PyTorch", "torch"),
    "on_cpu.with_transformers": ("transformers", "transformers accelerate peft"),
    "on_cpu.with_lightning": ("Lightning", "lightning"),
    "on_cpu.with_accelerate": ("accelerate", "accelerate scikit-learn"),
}
OF_JAX = (
    *("with_jax", "with_numpyro", "seventh.with_flax", "seventh.with_equinox"),
    *("eighth.with_jax", "eighth.with_optax", "eighth.with_numpyro"),
    *("ninth.with_jax", "ninth.with_flax", "ninth.with_equinox", "ninth.with_numpyro"),
    *("tenth.with_jax", "tenth.with_flax", "tenth.with_equinox", "tenth.with_numpyro"),
    *("tenth.with_optax", "eleventh.with_jax"),
    *("twelfth.with_jax", "twelfth.with_flax", "twelfth.with_chex", "twelfth.with_equinox"),
    *("twelfth.with_numpyro", "twelfth.with_optax"),
    *("thirteenth.with_jax", "thirteenth.with_flax", "thirteenth.with_numpyro"),
    *("fourteenth.with_jax", "fourteenth.with_flax", "fourteenth.with_optax"),
    "fifteenth.with_jax",
)
OWN_PROFILERS: dict[str, str | None] = {
    **dict.fromkeys(OF_JAX, "jax.profiler"),
    "with_cupy": None,
    **{
        f"{n}.with_cupy": None
        for n in ("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth")
    },
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
    # share of the step, timed without a profiler, that the fault takes at least; where it takes
    # less, what is planted is not clearly the program's bound, and its verdicts are not counted
    least_share: float = 0
    # regular expressions of what the report's evidence, and its advice, should say; as `planted`
    words: str = ""
    advice: str = ""

    @property
    def framework(self) -> str:
        return FRAMEWORKS[self.module][0]

    @property
    def own_profiler(self) -> str | None:
        """The profiler of the program's framework; None: it has none that writes a trace."""
        return OWN_PROFILERS.get(self.module, "torch.profiler")
