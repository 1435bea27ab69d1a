"""A program of PEFT: adapters that are loaded for the user of each request."""

from tempfile import TemporaryDirectory
from typing import Any

import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_peft import VOCAB, adapted
from validation.framework_programs.torch_parts import DEVICE


def peft_loads_adapters_each_time(fault: bool, mark: Mark) -> None:
    """Loads a user's adapters for a request, and deletes them behind it; without it they stay.

    PEFT makes modules at all 14 linear layers, and finds the place of each of 28 weights by names.
    """
    model: Any = adapted(size(1024, 64), size(2, 1)).eval()
    words = torch.randint(0, VOCAB, (4, size(64, 8)), device=DEVICE)
    with TemporaryDirectory(prefix="adapters-") as folder:
        model.save_pretrained(folder)
        if not fault:
            model.load_adapter(folder, "user", autocast_adapter_dtype=False)

        def answer() -> None:
            if fault:
                model.load_adapter(folder, "user", autocast_adapter_dtype=False)
            model.set_adapter("user")
            model(input_ids=words, use_cache=False)
            model.set_adapter("default")
            if fault:
                model.delete_adapter("user")

        with torch.no_grad():
            repeat(answer, mark)
