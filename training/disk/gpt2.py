"""Reads GPT-2's weights from transformers' layout into our model, and writes ours in that layout.

Called by train.py and sample.py for init_from=gpt2 and the like, and by training.export. In
transformers' layout names have the prefix `transformer.` or none, matrices of Conv1D lie
transposed, the head is the embedding and is not written, and older files have the causal masks of
each block.
"""

import json
import logging
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from cli.errors import one_line
from cli.files import make_folder, replacement_for, write_text
from configs.gpt2 import ACTIVATIONS, FIXED, WHOLE, shape_of, weights_files
from configs.model import GPT2_SIZES, ModelConfig
from configs.schema import Config
from data.dataset import Dataset
from data.hub_cache import REPOSITORIES, cached_file, hub_folder
from data.tokenizers import GPT2_TOKENS, BpeTokenizer
from model import GPT
from profiling.shared.model_description import from_keys
from training.disk.checkpoint_file import check_weights, model_config_of
from training.machine.model_description import describe

log = logging.getLogger(__name__)

PREFIX, HEAD, PLACES = "transformer.", "lm_head.weight", "wpe.weight"
TRANSPOSED = re.compile(r".*\.(c_attn|c_proj|c_fc)\.weight")
MASKS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


@dataclass(frozen=True)
class Pretrained:
    """A model that was not trained by a run of this trainer."""

    path: Path
    model_config: ModelConfig
    weights: dict[str, Tensor]  # as in training.disk.checkpoint_file.Checkpoint
    tokenizer: BpeTokenizer


def begin_from(model: GPT, config: Config, dataset: Dataset) -> None:
    """Loads the weights that init_from names into the model.

    Raises ValueError if they are not found, damaged or of another vocabulary than the dataset.
    """
    files = find_weights(config.init_from, config.weights)
    weights, vocab_size = load(files, config)
    tokenizer = dataset.tokenizer
    is_gpt2_s = config.init_from in GPT2_SIZES
    if vocab_size != tokenizer.vocab_size or is_gpt2_s and tokenizer.kind != "gpt2":
        raise ValueError(
            f"dataset={config.dataset}: has {tokenizer.vocab_size:,} tokens ({tokenizer.kind}), "
            f"init_from={config.init_from} {vocab_size:,} different ones; use GPT-2's tokens "
            "with dataset=shakespeare_bpe tokenizer=gpt2"
        )
    model.load_state_dict(weights)
    log.info("started from %s", files[0])


def load_pretrained(init_from: str, weights: str | None) -> Pretrained:
    """Loads the model of init_from=gpt2 and the like for sample.py.

    Raises ValueError if it is not found or damaged, or its tokens are not GPT-2's.
    """
    files = find_weights(init_from, weights)
    config = model_config_of(asdict(ModelConfig(dropout=0.0)) | shape_of(init_from, weights))
    ours, vocab_size = load(files, config)
    if vocab_size != GPT2_TOKENS + 1:
        raise ValueError(
            f"{files[0]}: has {vocab_size:,} tokens, but only GPT-2's {GPT2_TOKENS + 1:,} can be "
            "decoded here; sample from the run's own checkpoint"
        )
    return Pretrained(files[0], config, ours, BpeTokenizer.gpt2(beside=files[0].parent))


def find_weights(init_from: str, weights: str | None) -> list[Path]:
    """The .safetensors files of init_from=gpt2 and the like, from `weights` or from the cache.

    Raises ValueError, which says where it looked and how to download them.
    """
    if weights:
        return weights_files(weights)
    if path := cached_file(init_from, WHOLE):
        return [path]
    repository = REPOSITORIES[init_from][0]
    raise ValueError(
        f"init_from={init_from}: the weights are not in Hugging Face's cache, {hub_folder()}; "
        f"download them with hf download {repository} {WHOLE} vocab.json, or name them with "
        "weights=PATH"
    )


def load(files: list[Path], config: ModelConfig) -> tuple[dict[str, Tensor], int]:
    """The weights in float32 for a `model.GPT` of this configuration, and the vocabulary's size.

    Positions beyond block_size are cut off. Raises ValueError naming the file and what is wrong.
    """
    where = files[0] if len(files) == 1 else files[0].parent
    try:
        theirs = {name: tensor for file in files for name, tensor in read(file).items()}
        ours = from_transformers(theirs, config.block_size)
        vocab_size = len(ours[HEAD])
        check_weights(ours, config, vocab_size)
    except (ValueError, KeyError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{where}: not the weights of this GPT-2: {reason}") from error
    return ours, vocab_size


def read(path: Path) -> dict[str, Tensor]:
    """The tensors in a file but the masks, by name. Raises ValueError if the file is damaged."""
    from safetensors import SafetensorError, safe_open  # late, because most runs do without it

    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            short = {name: name.removeprefix(PREFIX) for name in names}
            return {short[n]: file.get_tensor(n) for n in names if not MASKS.fullmatch(short[n])}
    except (SafetensorError, OSError) as error:
        reason = one_line(error)[:120]
        raise ValueError(f"damaged or not a safetensors file ({reason}); copy it again") from error


def from_transformers(theirs: dict[str, Tensor], block_size: int) -> dict[str, Tensor]:
    """Converts transformers' tensors to our names and shapes, in float32.

    Raises ValueError if they do not fit our model, KeyError if an embedding is missing.
    """
    embedding, places = theirs["wte.weight"], theirs[PLACES]
    head = theirs.get(HEAD)
    if head is not None and not torch.equal(head, embedding):
        raise ValueError(f"{HEAD} is not the embedding, wte.weight; here both are the same tensor")
    if embedding.dim() != 2 or places.dim() != 2 or len(places) < block_size:
        raise ValueError(
            f"wte.weight is {tuple(embedding.shape)} and {PLACES} {tuple(places.shape)}, for "
            f"block_size={block_size}"
        )
    ours = {
        PREFIX + name: (weight.t() if TRANSPOSED.fullmatch(name) and weight.dim() == 2 else weight)
        for name, weight in theirs.items()
        if name != HEAD
    }
    ours[PREFIX + PLACES] = places[:block_size]
    ours = {name: w.float() if w.is_floating_point() else w for name, w in ours.items()}
    return ours | {HEAD: ours[PREFIX + "wte.weight"]}


def to_transformers(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Converts our weights to transformers' names and shapes.

    A model without biases gets zeros for them, which computes the same.
    """
    theirs: dict[str, Tensor] = {}
    for name, weight in ours.items():
        if name == HEAD:
            continue
        weight = weight.detach().cpu()
        turned = TRANSPOSED.fullmatch(name)
        theirs[name] = (weight.t() if turned else weight).contiguous()
        bias = name.removesuffix("weight") + "bias"
        if (turned or "ln_" in name) and name.endswith("weight") and bias not in ours:
            theirs[bias] = torch.zeros(len(weight))
    return theirs


def write(folder: Path, ours: dict[str, Tensor], config: ModelConfig, has_gpt2_s: bool) -> None:
    """Writes model.safetensors and config.json to `folder`, for transformers and init_from=weights.

    `has_gpt2_s`: whether its tokens are GPT-2's. Raises ValueError if they cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    described = transformers_config(config, len(ours[HEAD]), has_gpt2_s)
    make_folder(folder)
    with replacement_for(folder / WHOLE) as unfinished:
        unfinished.touch()
        mode = unfinished.stat().st_mode
        try:
            save_file(to_transformers(ours), unfinished, metadata={"format": "pt"})
            unfinished.chmod(mode)  # safetensors lets only the user read it
        except SafetensorError as error:  # a full disk, too
            raise ValueError(f"{folder / WHOLE}: cannot be written: {one_line(error)}") from error
    write_text(folder / "config.json", json.dumps(described, indent=2) + "\n")


def transformers_config(
    config: ModelConfig, vocab_size: int, has_gpt2_s: bool
) -> dict[str, object]:
    """The content of config.json for transformers' GPT2Config; configs.gpt2 reads it back.

    Raises ValueError if transformers' GPT-2 cannot be such a model.
    """
    spelled = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    check_is_gpt2(config, vocab_size, spelled)
    end_of_text = GPT2_TOKENS if has_gpt2_s else None  # the last token
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": vocab_size,
        "n_positions": config.block_size,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "activation_function": spelled[config.activation],
        **{f"{place}_pdrop": config.dropout for place in ("resid", "embd", "attn")},
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "torch_dtype": "float32",
        **FIXED,
    }


def check_is_gpt2(config: ModelConfig, vocab_size: int, activations: Collection[str]) -> None:
    """Raises ValueError naming a key or a weight if transformers' GPT-2 cannot be this model."""
    for key, supported in (("positions", ("learned",)), ("activation", activations)):
        if (value := getattr(config, key)) not in supported:
            raise ValueError(
                f"{key}={value}: transformers' GPT-2 has {' and '.join(supported)} alone, so "
                f"this model cannot be written as one; train with {key}={' or '.join(supported)}"
            )
    ours, theirs = describe(config, vocab_size), from_keys(asdict(config), vocab_size)
    refused = "this model cannot be written as transformers' GPT-2: "
    for name in ours.parameters | theirs.parameters:
        here, there = (each.parameters.get(name, "absent") for each in (ours, theirs))
        if here != there:
            raise ValueError(f"{refused}{name} is {here} here, and {there} there")
    if ours != theirs:
        raise ValueError(f"{refused}its MLP computes something else")
