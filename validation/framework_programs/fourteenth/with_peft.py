"""A program of PEFT: adapters that are merged into weights for one user after the other."""

from typing import Any

import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_peft import adapted


def peft_merges_control(fault: bool, mark: Mark) -> None:
    """Merges adapters into a layer of 8,192 channels, and takes them out again."""
    model: Any = adapted(size(8192, 64), 1).eval()

    def serve() -> None:
        model.merge_adapter()
        model.unmerge_adapter()

    with torch.no_grad():
        repeat(serve, mark)
