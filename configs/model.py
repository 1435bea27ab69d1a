"""The keys that define the model. Read by model.py; `configs.schema.Config` inherits them."""

from dataclasses import dataclass

from cli.keys import check_values, key
from configs import backends

GPT2_SIZES = ("gpt2", "gpt2_medium", "gpt2_large", "gpt2_xl")


@dataclass
class ModelConfig:
    """Keys of the model, without a section."""

    n_layer: int = key(6, "transformer blocks", least=1, role="model")
    n_head: int = key(6, "attention heads per block", least=1, role="model")
    n_embd: int = key(384, "width of the model; a multiple of n_head", least=1, role="model")
    block_size: int = key(256, "context length in tokens", least=1, role="model")
    dropout: float = key(0.2, "dropout probability; 0: no dropout", least=0, below=1, role="work")
    bias: bool = key(False, "use biases in linear layers and layer norms", role="model")
    activation: str = key(
        "gelu",
        "activation of the MLP; gelu: as in nanoGPT; gelu_tanh: the approximation that GPT-2 was "
        "trained with",
        ("gelu", "gelu_tanh"),
        role="model",
        before="gelu",
    )
    positions: str = key(
        "learned",
        "learned: added to the embeddings; rotary: queries and keys are rotated by position",
        ("learned", "rotary"),
        role="model",
        before="learned",
    )
    attention: str = key(backends.AUTO, backends.HELP, backends.CHOICES, role="speed")
    kernels: str = key(
        "auto",
        "kernels of embedding, norms, GELU, loss and optimizer; fused: our own, on CUDA "
        "(gelu_tanh and the embedding of over 256 ids stay PyTorch's); compiled: "
        "torch.compile's, or PyTorch's; auto: set by speed; with speed=fast our own where they "
        "are proved (the run says which)",
        ("auto", "compiled", "fused"),
        role="speed",
        before="compiled",
        follows="speed",
        tuning=True,
    )
    residual_dtype: str = key(
        "float32",
        "dtype of the residual stream, to which each block adds; bfloat16: half the traffic of "
        "norms and sums, but rounded at each sum; needs dtype=bfloat16",
        ("float32", "bfloat16"),
        role="work",
        before="float32",
        tuning=True,
    )

    def __post_init__(self) -> None:
        check_values(self)
        if self.n_embd % self.n_head:
            raise ValueError(
                f"n_embd={self.n_embd}: not divisible by n_head={self.n_head}; "
                f"{self.n_embd - self.n_embd % self.n_head or self.n_head} is possible"
            )
        if self.positions == "rotary" and self.n_embd // self.n_head % 2:
            raise ValueError(
                "positions=rotary: rotates pairs of numbers, but a head has "
                f"{self.n_embd // self.n_head}; choose n_embd and n_head so that n_embd / n_head "
                "is even"
            )
        backend = backends.BACKENDS.get(self.attention)
        if backend and not backend.dropout and self.dropout > 0:
            raise ValueError(
                f"attention={backend.name}: {backend.meaning} does not support dropout; add "
                "dropout=0"
            )
