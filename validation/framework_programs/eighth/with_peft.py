"""A program of PEFT: it trains low-rank adapters in a Llama."""

import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_peft import VOCAB, adapted
from validation.framework_programs.torch_parts import DEVICE, training_step


def peft_recomputes(fault: bool, mark: Mark) -> None:
    """Trains with gradient checkpointing where memory is plenty; without the fault it keeps all.

    Each layer's forward pass runs twice.
    """
    model = adapted(size(2048, 64), size(6, 1)).train()
    if fault:
        model.gradient_checkpointing_enable()  # type: ignore[operator]
        model.enable_input_require_grads()  # type: ignore[operator]
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4)
    words = torch.randint(0, VOCAB, (size(8, 2), size(1024, 8)), device=DEVICE)

    def loss() -> torch.Tensor:
        out: torch.Tensor = model(input_ids=words, labels=words, use_cache=False).loss
        return out

    repeat(training_step(optimizer, loss), mark)
