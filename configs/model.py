"""The keys that say what the model is. Read by model.py; `configs.schema.Config` inherits them."""

from dataclasses import dataclass, field

from configs import attention


@dataclass
class ModelConfig:
    """Flat keys of the configuration."""

    n_layer: int = field(default=6, metadata={"help": "transformer blocks"})
    n_head: int = field(default=6, metadata={"help": "attention heads in a block"})
    n_embd: int = field(default=384, metadata={"help": "width; a multiple of n_head"})
    block_size: int = field(default=256, metadata={"help": "context length in tokens"})
    dropout: float = field(default=0.2, metadata={"help": "probability of dropping; 0: none"})
    bias: bool = field(default=False, metadata={"help": "biases in linear layers and layer norms"})
    attention: str = field(
        default=attention.AUTO,
        metadata={"help": attention.HELP, "choices": attention.CHOICES},
    )

    def __post_init__(self) -> None:
        for key in ("n_layer", "n_head", "n_embd", "block_size"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}={getattr(self, key)}: must be at least 1")
        if self.n_embd % self.n_head:
            raise ValueError(
                f"n_embd={self.n_embd}: not divisible by n_head={self.n_head}; "
                f"{self.n_embd - self.n_embd % self.n_head or self.n_head} would be"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}: must be at least 0 and less than 1")
        backend = attention.BACKENDS.get(self.attention)
        if backend and not backend.dropout and self.dropout > 0:
            raise ValueError(
                f"attention={backend.name}: {backend.meaning} has no dropout; add dropout=0"
            )
