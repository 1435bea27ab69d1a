"""Generates a few tokens with a small model while sample.py reads the checkpoint, on CUDA.

The first to use the GPU waits until cuBLAS has made its handle, Triton has hashed itself and each
kernel is loaded. While the host reads and checks a file, a thread can do that waiting. Nobody else
may use the GPU then, because PyTorch's choice of attention kernels is one for the whole process.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import torch

from configs.model import ModelConfig
from kernels.fused_model import make_model
from training.sampling.generation import Writer

CHARACTERS = 65  # of Shakespeare


@contextmanager
def rehearsal(device: torch.device, dtype: str, rows: int) -> Iterator[None]:
    """Loads what generating `rows` texts needs on the GPU, in a thread beside the block.

    It is loaded when the block is left. On another device nothing happens.
    """
    if device.type != "cuda":
        yield
        return

    def rehearse_quietly() -> None:
        with suppress(Exception):  # what fails here fails again, with a message, in the real run
            rehearse(device, dtype, rows)

    thread = Thread(target=rehearse_quietly, name="rehearsal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def rehearse(device: torch.device, dtype: str, rows: int) -> None:
    """Runs a small model on a prompt of one token, on half a context and on a single new token."""
    torch.cuda.set_device(device)  # each thread has its own
    model = make_model(ModelConfig(n_layer=1, dropout=0.0), CHARACTERS)
    model = model.to(device, getattr(torch, dtype)).eval()
    writer = Writer(model, rows, 1.0, None, own=True)
    for tokens in (1, writer.half):
        writer.begin([0] * tokens, 0)
        writer.step()
    writer.step()
    torch.cuda.synchronize(device)
