"""A program of accelerate: batches with a field that nobody reads."""

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from validation.framework_programs.eleventh.with_accelerate import accelerator
from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import Made, residual_mlp, training_step


def accelerate_moves_what_is_logged(fault: bool, mark: Mark) -> None:
    """Leaves 64 pictures in a batch of their features, to log a few; without the fault their names.

    A prepared loader moves all fields: 201 MB of pageable memory, of which the model reads none.
    """
    pictures, edge, width = size(64, 2), size(1024, 8), size(2048, 16)
    features = torch.randn(pictures, width)
    shown = torch.randint(0, 256, (pictures, 3, edge, edge), dtype=torch.uint8)
    logged: dict[str, object] = {"pictures": shown} if fault else {"names": [*map(str, range(64))]}
    accelerated = accelerator()
    model = residual_mlp(width, size(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    made = Made(lambda index: {"features": features, **logged})
    loader = DataLoader(made, batch_size=None)
    model, optimizer, loader = accelerated.prepare(model, optimizer, loader)
    batches = iter(loader)

    def loss() -> Tensor:
        out: Tensor = model(next(batches)["features"])
        return out.float().square().mean()

    repeat(training_step(optimizer, loss), mark)
