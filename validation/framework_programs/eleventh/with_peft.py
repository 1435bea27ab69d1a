"""A program of PEFT: the adapters of a small model."""

import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_peft import VOCAB, adapted
from validation.framework_programs.torch_parts import DEVICE, training_step


def peft_small_control(fault: bool, mark: Mark) -> None:
    """Trains the adapters of a small model on four short texts."""
    model = adapted(size(256, 64), size(6, 1)).train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4)
    words = torch.randint(0, VOCAB, (size(4, 2), size(32, 8)), device=DEVICE)
    repeat(training_step(optimizer, lambda: model(input_ids=words, labels=words).loss), mark)
