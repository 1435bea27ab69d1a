"""MLPs that a user may write in GPT-2's place."""

from torch import Tensor, nn
from torch.nn import functional as F

from configs.model import ModelConfig
from model import MLP


class SwiGLU(nn.Module):
    """Two products, gated, of a width of 3 C."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.w1 = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.w2 = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(3 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.silu(self.w1(x)) * self.w2(x))


class SiLU(MLP):
    """GPT-2's weights, and another function between them."""

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.silu(self.c_fc(x)))
