"""Applies torch.compile to the model, and keeps its results so that the next start is short."""

import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from configs.sharing import SHARDED
from configs.training import TrainingConfig
from kernels.triton_hash import hash_triton_meanwhile
from model import GPT, Block

log = logging.getLogger(__name__)

# The graph of a block whose attention backend is pinned calls these functions with the backend's
# name, which therefore is part of the cache's key. PyTorch does not list them as cacheable, and
# would trace such a block again at each start.
CACHEABLE = ("torch.nn.attention._backend_from_string", "torch.nn.attention._sdpa_kernel")


def compile_model(model: GPT, config: TrainingConfig) -> Callable[..., tuple[Tensor, Tensor]]:
    """The forward function of `model`, compiled as a whole or part by part if `compile` is true.

    Of a block that is to be sharded only `forward` is compiled, because the hooks that gather its
    weights have to run outside of compiled code.
    """
    if not config.compile:
        return model
    # inductor advises TF32; it has 10 bits of mantissa, and float32 means float32 here
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    set_cache_folder(config.compile_cache)
    with hash_triton_meanwhile():  # the first torch.compile imports for seconds
        torch._dynamo.config.optimize_ddp = False  # DDP's would cut a block where a bucket ends
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


def set_cache_folder(place: str) -> None:
    """Has torch.compile keep its results, traced graphs too, in the folder `place`.

    A folder that cannot be made is only warned of: the next start compiles again.
    """
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
    """Shortens inductor's log lines about this project's operators to the operator's name.

    PyTorch 2.11 writes such a line when it makes a lowering for an operator, and spells out all
    the operands that lead up to it. That doubles at each sum: with 12 layers it never ends.
    """
    from torch._inductor.exc import OperatorIssue

    def name_only(target: object, args: object, kwargs: object) -> str:
        return f"  target: {target}"

    OperatorIssue.operator_str = staticmethod(name_only)  # type: ignore[method-assign]
