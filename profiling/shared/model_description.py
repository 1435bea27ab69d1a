"""Description of a model: its parameters, and the work of a training step by family of kernels.

The trainer writes it into manifests (training.machine.model_description); reports, `scale`, the
check of memory and the export read it, and no other place has a formula of the model's shape.

Work of a token, in forward and backward, with C = n_embd, L = n_layer, T = block_size, H = n_head,
V = vocabulary, i x o = a matrix; backward is twice forward. Values are the numbers that are read
or written, each input and output once, as if nothing stayed in the cache:

- gemm: 6 i o FLOPs and 3 (i + o) values of each matrix, the head's too; the matrix itself is read
  and written once a step
- attention: 12 L T C, its two products with all scores, and 12 L C values
- softmax: 8 an element of L T H, and 5 values. norm: 20 an element of all norms, and 5 values
- elementwise: what the MLP computes between its products; GELU: 30 an element, and 5 values
- embedding: 2 C, and 4 C values. loss: 8 a logit, and 4 values
"""

import re
from dataclasses import dataclass, field
from math import prod
from typing import Annotated, Literal

import msgspec

from profiling.shared.json_records import JsonObject

Size = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
Layers = Annotated[int, msgspec.Meta(ge=1, le=100_000)]  # a block of shapes is made for each
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Shapes = dict[str, tuple[Size, ...]]  # of parameters, by name
Matrix = tuple[int, int]  # (outputs, inputs)

TABLE, POSITIONS, HEAD = "transformer.wte.weight", "transformer.wpe.weight", "lm_head.weight"
IN_BLOCK = re.compile(r"transformer\.h\.(\d+)\.(.+)")
GELU_FLOPS = 30  # of an element, in forward and backward


@dataclass(frozen=True)
class TokenWork:
    """The work of a token in one family, in forward and backward."""

    flops: Count
    values: Count  # numbers that are read or written


@dataclass(frozen=True)
class FamilyWork:
    """The work of a token, by the families of profiling.analysis.gpu_work.families."""

    gemm: TokenWork  # without the products of attention
    attention: TokenWork
    softmax: TokenWork
    norm: TokenWork
    elementwise: TokenWork
    embedding: TokenWork
    loss: TokenWork


@dataclass(frozen=True)
class ModelDescription:
    """A model as a run trains it. Parameters that are tied are there once, under the first name."""

    parameters: Shapes  # in the order of the model
    work: FamilyWork
    unknown: list[str] = field(default_factory=list)  # what is missing in `work`

    def __post_init__(self) -> None:
        if len(self.parameters.get(TABLE, ())) != 2:
            raise ValueError(f"a model without {TABLE} of two dimensions")
        if not self.work.gemm.flops or not all(map(matrices_of, self.blocks or [{}])):
            raise ValueError("a model without blocks that have matrices")

    @property
    def blocks(self) -> list[Shapes]:
        """The parameters of each block, by their names in it."""
        return blocks_of(self.parameters)

    @property
    def vocab_size(self) -> int:
        return self.parameters[TABLE][0]

    @property
    def width(self) -> int:
        return self.parameters[TABLE][1]

    @property
    def parameter_count(self) -> int:
        return sum(map(prod, self.parameters.values()))

    @property
    def flops_per_token(self) -> int:
        """FLOPs as model.GPT.flops_per_token counts them, whatever attention skips."""
        positions = prod(self.parameters[POSITIONS]) if POSITIONS in self.parameters else 0
        return 6 * (self.parameter_count - positions) + self.work.attention.flops


def blocks_of(parameters: Shapes) -> list[Shapes]:
    blocks: dict[str, Shapes] = {}
    for name, shape in parameters.items():
        if match := IN_BLOCK.fullmatch(name):
            blocks.setdefault(match[1], {})[match[2]] = shape
    return list(blocks.values())


def matrices_of(parameters: Shapes) -> list[Matrix]:
    """The matrices among `parameters` that a product multiplies by; the head may be the table."""
    looked_up = {POSITIONS, TABLE} if HEAD in parameters else {POSITIONS}
    return [
        (shape[0], shape[1])
        for name, shape in parameters.items()
        if len(shape) == 2 and name not in looked_up
    ]


def norm_width(parameters: Shapes) -> int:
    """Number of elements that all norms among `parameters` make of a token."""
    weights = (shape for name, shape in parameters.items() if name.endswith("weight"))
    return sum(shape[0] for shape in weights if len(shape) == 1)


def described(
    parameters: Shapes, n_head: int, block_size: int, elementwise: TokenWork, unknown: list[str]
) -> ModelDescription:
    """The description of a decoder with these parameters, by the formulae above.

    `elementwise` is the work of all its MLPs between their products.
    """
    matrices, norms, blocks = matrices_of(parameters), norm_width(parameters), blocks_of(parameters)
    V, C = parameters[TABLE]
    scores = len(blocks) * block_size * n_head
    work = FamilyWork(
        gemm=TokenWork(6 * sum(map(prod, matrices)), 3 * sum(map(sum, matrices))),
        attention=TokenWork(12 * len(blocks) * block_size * C, 12 * len(blocks) * C),
        softmax=TokenWork(8 * scores, 5 * scores),
        norm=TokenWork(20 * norms, 5 * norms),
        elementwise=elementwise,
        embedding=TokenWork(2 * C, 4 * C),
        loss=TokenWork(8 * V, 4 * V),
    )
    return ModelDescription(parameters, work, unknown)


@dataclass(frozen=True)
class GPT2Keys:
    """The keys that define a GPT-2, as runs recorded them before they described their model."""

    n_layer: Layers
    n_head: Size
    n_embd: Size
    block_size: Size
    bias: bool = False
    positions: Literal["learned", "rotary"] = "learned"
    activation: Literal["gelu", "gelu_tanh"] = "gelu"
    vocab_size: Size | None = None  # mostly the manifest has it


def from_keys(config: JsonObject, vocab_size: int | None) -> ModelDescription:
    """The description of GPT-2 with these keys: what is read where a run did not describe itself.

    Raises ValueError with a sentence if keys are missing or mean another model.
    """
    try:
        keys = msgspec.convert(config, GPT2Keys)
    except msgspec.ValidationError as error:
        raise ValueError(f"the manifest's config: {error}") from error
    vocab_size = vocab_size or keys.vocab_size
    if vocab_size is None:
        raise ValueError("the manifest does not say vocab_size")
    return gpt2(keys, vocab_size)


def gpt2(keys: GPT2Keys, vocab_size: int) -> ModelDescription:
    """The description of GPT-2 with these keys."""
    C, L = keys.n_embd, keys.n_layer
    parameters: Shapes = {TABLE: (vocab_size, C)}
    if keys.positions == "learned":
        parameters[POSITIONS] = (keys.block_size, C)
    in_block: Shapes = {
        "ln_1": (C,),
        "attn.c_attn": (3 * C, C),
        "attn.c_proj": (C, C),
        "ln_2": (C,),
        "mlp.c_fc": (4 * C, C),
        "mlp.c_proj": (C, 4 * C),
    }
    layers = {f"h.{n}.{name}": shape for n in range(L) for name, shape in in_block.items()}
    for name, shape in (layers | {"ln_f": (C,)}).items():
        parameters[f"transformer.{name}.weight"] = shape
        if keys.bias:
            parameters[f"transformer.{name}.bias"] = shape[:1]
    gelu = TokenWork(4 * GELU_FLOPS * L * C, 20 * L * C)
    return described(parameters, keys.n_head, keys.block_size, gelu, [])
