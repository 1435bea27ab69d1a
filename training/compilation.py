"""torch.compile of the model, and what makes the next start with it a short one."""

import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from configs.training import TrainingConfig
from kernels.triton_hash import hash_triton_meanwhile
from model import GPT, Block
from training.parallel import SHARDED

log = logging.getLogger(__name__)

# In the graph of a block whose attention is pinned these stand with the backend's name, so that it
# is part of the cache's key. PyTorch lists neither, and would trace such a block at each start.
CACHEABLE = ("torch.nn.attention._backend_from_string", "torch.nn.attention._sdpa_kernel")


def compiled(model: GPT, config: TrainingConfig) -> Callable[..., tuple[Tensor, Tensor]]:
    """The model, or its parts one by one, behind torch.compile when `compile` asks for it.

    Of a block that is to be sharded its forward alone: what gathers its weights stands before it.
    """
    if not config.compile:
        return model
    # float32 means float32 here; TF32, which inductor advises, has 10 bits of mantissa
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    keep_compiled(config.compile_cache)
    with hash_triton_meanwhile():  # the first torch.compile imports for seconds
        torch._dynamo.config.optimize_ddp = False  # it would cut a block at the ends of buckets
        name_operators_briefly()
        if config.compile_scope == "model":
            return torch.compile(model)
        for module in model.modules():
            if isinstance(module, Block) and config.parallel in SHARDED:
                module.forward = torch.compile(module.forward)  # type: ignore[method-assign]
            elif isinstance(module, Block):
                module.compile()
        for owner, name in ((model.transformer, "embed"), (model, "score")):
            setattr(owner, name, torch.compile(getattr(owner, name)))
    return model


def keep_compiled(place: str) -> None:
    """What torch.compile makes lies in the folder `place` for the next start, traced graphs too."""
    folder = Path(place).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # it costs time and nothing else
        log.warning("compile_cache=%s: %s; the next start compiles again", place, error.strerror)
    else:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.resolve())
    from torch._inductor import config

    if hasattr(config, "unsafe_marked_cacheable_functions"):  # PyTorch 2.6 and newer
        version = str(torch.__version__)
        config.unsafe_marked_cacheable_functions |= dict.fromkeys(CACHEABLE, version)


def name_operators_briefly() -> None:
    """Of an operator of our own, whose lowering it has to make, PyTorch 2.11 writes a line for its
    log, with all that leads up to it: at each sum twice as much, behind 12 layers without an end.
    """
    from torch._inductor.exc import OperatorIssue

    def named(target: object, args: object, kwargs: object) -> str:
        return f"  target: {target}"

    OperatorIssue.operator_str = staticmethod(named)  # type: ignore[method-assign]
