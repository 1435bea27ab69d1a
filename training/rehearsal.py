"""A small model's first tokens, while the checkpoint is read. For sample.py on CUDA.

Whoever comes first waits until cuBLAS has made its handle, Triton has hashed itself and each kernel
is loaded. The host reads and checks a file meanwhile, so a thread can be the first. Nobody else may
use the GPU then: which kernels attention may take is said to the whole process.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import torch

from configs.model import ModelConfig
from model import GPT
from training.generation import Writer

CHARACTERS = 65  # of Shakespeare


@contextmanager
def rehearsal(device: torch.device, dtype: str, rows: int) -> Iterator[None]:
    """On leaving, what `rows` texts need on the device lies ready; elsewhere it does nothing."""
    if device.type != "cuda":
        yield
        return

    def quietly() -> None:
        with suppress(Exception):  # what fails here fails again where it is needed, and is told
            rehearse(device, dtype, rows)

    thread = Thread(target=quietly, name="rehearsal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def rehearse(device: torch.device, dtype: str, rows: int) -> None:
    """Reads a prompt, half a context and a single token."""
    torch.cuda.set_device(device)  # each thread has its own
    model = GPT(ModelConfig(n_layer=1, dropout=0.0), CHARACTERS)
    model = model.to(device, getattr(torch, dtype)).eval()
    writer = Writer(model, rows, 1.0, None, own=True)
    for tokens in (1, writer.half):
        writer.begin([0] * tokens, 0)
        writer.step()
    writer.step()
    torch.cuda.synchronize(device)
