"""Describes the model that a configuration makes: its parameters, and the work of a step by family.

Called by training.profiler for manifests, and by whoever has to know a model's sizes before it is
made. No weights are made; the record is profiling.shared.model_description.
"""

from collections.abc import Callable
from dataclasses import fields
from math import prod
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode

from cli.errors import one_line
from configs import backends
from configs.model import ModelConfig
from kernels.fused_model import make_model
from model import GPT
from profiling.shared.model_description import (
    GELU_FLOPS,
    ModelDescription,
    Shapes,
    TokenWork,
    described,
)
from training.machine.dispatch_mode import PlainDispatchMode

PRODUCTS = {"mm": 0, "addmm": 1}  # PyTorch's name -> place of the input among its arguments
# FLOPs of an element in forward and backward of what an MLP may compute between its products
FLOPS = {"gelu": GELU_FLOPS, "silu": 20, "relu": 2, "mul": 3, "add": 1, "pow": 3}


class WithoutInit(TorchFunctionMode):
    """Mode in which torch.nn.init does nothing.

    To initialise a meta tensor, which has no memory, would import Dynamo.
    """

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        arguments: tuple[object, ...] = (),
        named: dict[str, object] | None = None,
    ) -> object:
        named = named or {}
        if getattr(function, "__module__", "") == torch.nn.init.__name__:
            return named["tensor"] if "tensor" in named else arguments[0]
        return function(*arguments, **named)


class Operations(PlainDispatchMode):
    """Mode that counts what an MLP computes on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.outputs = list[int](), list[int]()  # numbers of values, of each product
        self.flops = 0  # between products
        self.unknown = list[str]()

    def __torch_dispatch__(
        self,
        operator: OpOverload,
        types: object,
        arguments: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:
        name = operator.overloadpacket.__name__
        # PyTorch's meta functions of these would import Dynamo and sympy, which take a second.
        if name in PRODUCTS:
            rows, matrix = arguments[PRODUCTS[name] : PRODUCTS[name] + 2]
            self.inputs.append(rows.numel())
            self.outputs.append(rows.size(0) * matrix.size(1))
            return torch.empty(rows.size(0), matrix.size(1), device="meta")
        if name in FLOPS:
            tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
            shape = max((tensor.shape for tensor in tensors), key=prod)
            self.flops += FLOPS[name] * prod(shape)
            return torch.empty(shape, device="meta")
        if not operator.is_view and name != "_unsafe_view":
            self.unknown.append(name)
        return operator(*arguments, **(named or {}))

    @property
    def work(self) -> TokenWork:
        """Work between the products, as in one kernel.

        It reads what products made and writes what the last one reads. Backward reads both again,
        the second one's gradient, and writes the first one's gradient.
        """
        made, wanted = sum(self.outputs[:-1]), sum(self.inputs[-1:])
        return TokenWork(self.flops, 3 * made + 2 * wanted if self.flops else 0)


def empty_model(config: ModelConfig, vocab_size: int) -> GPT:
    """The model on the meta device. Raises ValueError where PyTorch cannot address its tensors."""
    keys = {each.name: getattr(config, each.name) for each in fields(ModelConfig)}
    plain = {"kernels": "compiled", "attention": backends.AUTO, "dropout": 0.0}
    try:
        with torch.device("meta"), WithoutInit():
            return make_model(ModelConfig(**keys | plain), vocab_size)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"no such model can be made: {one_line(error)[:120]}") from error


def parameters_of(model: GPT) -> Shapes:
    """Shapes of all parameters by name; those that are tied are there once."""
    return {name: tuple(each.shape) for name, each in model.named_parameters()}


def describe(config: ModelConfig, vocab_size: int) -> ModelDescription:
    """The description of the model with these keys, as model.py makes it."""
    model = empty_model(config, vocab_size)
    flops = values = 0
    unknown: dict[str, None] = {}
    for block in model.transformer.h:
        counted = operations_of(block.get_submodule("mlp"), config.n_embd)
        flops, values = flops + counted.work.flops, values + counted.work.values
        unknown |= dict.fromkeys(counted.unknown)
    parameters, elementwise = parameters_of(model), TokenWork(flops, values)
    return described(parameters, config.n_head, config.block_size, elementwise, list(unknown))


@torch.no_grad()
def operations_of(mlp: nn.Module, width: int) -> Operations:
    """Counts what an MLP on the meta device computes for one token."""
    counted, token = Operations(), torch.empty(1, 1, width, device="meta")
    try:
        with counted:
            mlp(token)
    except Exception as error:  # whatever does not run without data is unknown, and no run's end
        counted.unknown.append(one_line(f"{type(error).__name__}: {error}")[:120])
    return counted
