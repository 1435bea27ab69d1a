"""Parts that the programs share: models, inputs, loaders, a training step, a CUDA graph."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader, Dataset

from validation.framework_programs.torch_parts import endless

DEVICE = "cuda"
CLASSES = 1000
BERT_VOCAB, GPT2_VOCAB = 30522, 50257

Step = Callable[[], object]


def torchvision_model(name: str) -> nn.Module:
    """Model of torchvision with random weights, as all models here have."""
    from torchvision.models import get_model

    model: nn.Module = get_model(name)
    return model


def timm_model(name: str, **options: object) -> nn.Module:
    from timm import create_model

    model: nn.Module = create_model(name, **options)
    return model


def bert(layers: int = 12, width: int = 768, **options: object) -> nn.Module:
    """BERT with heads of 64 channels."""
    from transformers import BertConfig, BertForMaskedLM

    shape = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
    }
    model: nn.Module = BertForMaskedLM(BertConfig(**{**shape, **options}))
    return model


def gpt2(layers: int = 12, **options: object) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    model: nn.Module = GPT2LMHeadModel(GPT2Config(n_layer=layers, **options))
    return model


def training_step(
    model: nn.Module,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
    amp: bool = True,
) -> Callable[[Tensor, Tensor], None]:
    """Function (inputs, labels) that runs forward, cross entropy, backward and update.

    `optimizer` makes the optimizer, AdamW by default; `amp` is bfloat16 autocast.
    """
    model = model.to(DEVICE).train()
    optimized = optimizer(model.parameters()) if optimizer else AdamW(model.parameters(), lr=1e-4)

    def step(x: Tensor, y: Tensor) -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=amp):
            out = model(x)
            out = getattr(out, "logits", out)
            loss = F.cross_entropy(out.flatten(0, -2), y.flatten())
        loss.backward()
        optimized.step()
        optimized.zero_grad(set_to_none=True)

    return step


def add_hooks(model: nn.Module, kinds: Iterable[str], hook: Callable[..., None]) -> None:
    """Call `hook` after the forward of each module whose class has one of the names `kinds`."""
    for module in model.modules():
        if type(module).__name__ in kinds:
            module.register_forward_hook(hook)


def images(count: int, size: int = 224) -> tuple[Tensor, Tensor]:
    """Images (count, 3, size, size) and labels (count,), on the GPU."""
    return torch.randn(count, 3, size, size, device=DEVICE), labels(count)


def labels(count: int) -> Tensor:
    return torch.randint(0, CLASSES, (count,), device=DEVICE)


def tokens(batch: int, length: int, vocab: int = BERT_VOCAB) -> Tensor:
    return torch.randint(0, vocab, (batch, length), device=DEVICE)


class Photos(Dataset[tuple[Tensor, int]]):
    """Blank images with labels; `work` is done for each image."""

    def __init__(self, work: Callable[[Tensor], object], count: int = 100_000) -> None:
        self.work, self.count = work, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x = torch.empty(3, 224, 224).fill_(index % 7)
        self.work(x)
        return x, index % CLASSES


def no_work(x: Tensor) -> None:
    """Do no work for a photo."""


def loader_step(
    step: Callable[[Tensor, Tensor], None],
    loader: DataLoader[tuple[Tensor, int]],
    non_blocking: bool = False,
) -> Step:
    """Step that copies the loader's next batch to the GPU and runs `step` on it."""
    batches = endless(loader)

    def load_and_step() -> None:
        x, y = next(batches)
        step(x.to(DEVICE, non_blocking=non_blocking), y.to(DEVICE, non_blocking=non_blocking))

    return load_and_step


def graph_of(call: Step, training: bool = False) -> torch.cuda.CUDAGraph:
    """CUDA graph of `call`, an inference or a training step, warmed up on a stream of its own."""
    with torch.set_grad_enabled(training):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
    return graph


def replay_step(graph: torch.cuda.CUDAGraph, count: int) -> Step:
    def replay() -> None:
        for _ in range(count):
            graph.replay()

    return replay
