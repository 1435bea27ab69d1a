"""Reads a checkpoint, as data and never as code, and checks every entry of it.

Called by training.disk.checkpoint to resume, and by sample.py, which needs only its first half.
"""

import io
import math
import re
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cli.errors import one_line
from cli.keys import Value, keys, spell
from cli.records import entry, entry_or_none
from configs.model import ModelConfig
from data.tokenizers import Tokenizer, load_tokenizer
from kernels.fused_model import make_model
from model import GPT
from training.disk.nanogpt_checkpoint import convert_checkpoint, is_nanogpts
from training.disk.shard_index import ShardIndex
from training.machine.model_description import WithoutInit

ADVICE = "Weights only load failed"
AGAIN = "use another copy of the file, or train again with init_from=scratch"


@dataclass(frozen=True)
class Checkpoint:
    """Content of a file that `training.disk.checkpoint.save` wrote; None for an absent entry.

    Only what a resume needs may be absent.
    """

    path: Path
    config: Mapping[str, Value]  # the run's configuration: flat keys, and sections
    model_config: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]  # finite, with the shapes that model_config gives
    iteration: int  # the next one to run
    best_val_loss: float  # inf if there was no evaluation yet
    best_iteration: int | None
    source: str | None  # source of the text
    text_sha256: str | None
    optimizer: dict[int, dict[str, Tensor]] | None  # by parameter number
    scaler: Mapping[str, float] | None  # empty if there was none
    random_states: dict[str, list[Tensor]] | None  # one per rank, by kind of device
    shards: ShardIndex | None = None  # tensors still in files, on meta here
    is_nanogpts: bool = False  # nanoGPT's file, which lacks what a resume needs


def read_checkpoint(
    path: Path, device: torch.device | str = "cpu", at_a_glance: bool = False
) -> Checkpoint:
    """Reads and checks ckpt.pt; what lies in shards beside it stays there, as meta tensors.

    With `at_a_glance` tensors stay in the file, on the CPU, and damage to their numbers goes
    unnoticed. Raises ValueError with one line: the file, what is wrong with it, what to do.
    """
    state = read_state(path, device, at_a_glance)
    try:
        if is_nanogpts(state):
            ours = checkpoint_from(path, convert_checkpoint(path, state), at_a_glance)
            return replace(ours, is_nanogpts=True)
        return checkpoint_from(path, state, at_a_glance)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else one_line(error)
        if is_nanogpts(state):
            raise ValueError(f"{path}: nanoGPT's checkpoint, not read: {reason}") from error
        raise ValueError(
            f"{path}: not a checkpoint of this program: {reason[:160]}; {AGAIN}"
        ) from error


def read_state(
    path: Path, device: torch.device | str = "cpu", at_a_glance: bool = False
) -> dict[str, object]:
    """Reads the dictionary in a checkpoint, unchecked; no code in it is run.

    Raises ValueError if the file is missing, damaged or no dictionary.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no checkpoint; train first, with init_from=scratch")
    state = read_data(path, path, device, at_a_glance)
    if not isinstance(state, dict):
        kind = type(state).__name__
        raise ValueError(
            f"{path}: damaged or not a checkpoint (a {kind}, not a dictionary); {AGAIN}"
        )
    return state


def read_data(
    path: Path,
    content: Path | io.BytesIO,
    device: torch.device | str = "cpu",
    at_a_glance: bool = False,
) -> object:
    """Reads what torch.save wrote to `content`, which is the file `path` or part of it.

    Raises ValueError, which names `path`, if it is damaged or names code.
    """
    try:
        with zipfile.ZipFile(content) as archive:
            # torch.load does not verify the checksums
            if not at_a_glance and (broken := archive.testzip()):
                raise zipfile.BadZipFile(f"wrong checksum of {broken}")
        if isinstance(content, io.BytesIO):
            content.seek(0)
        return torch.load(content, map_location=device, weights_only=True, mmap=at_a_glance)
    except Exception as error:  # PyTorch's unpickler raises a dozen kinds on broken bytes
        if code := re.search(r"GLOBAL (\S+)", str(error)):
            raise ValueError(
                f"{path}: damaged or not a checkpoint (it names {code[1]}, which is code); no "
                "code in it was run: do not open this file elsewhere unless you know where it "
                "comes from"
            ) from error
        text = str(error)
        if ADVICE in text:  # the reason comes after a paragraph for programmers
            text = text.partition("\n")[2]
        reason = one_line(text).strip()[:120] or type(error).__name__
        raise ValueError(f"{path}: damaged or not a checkpoint ({reason}); {AGAIN}") from error


def checkpoint_from(path: Path, state: Mapping[str, object], at_a_glance: bool) -> Checkpoint:
    """Makes a Checkpoint of its entries, each of them checked.

    Raises ValueError, TypeError or KeyError for the first entry that is wrong.
    """
    config = entry(state, "config", dict)
    if strange := [name for name, value in config.items() if not is_plain(value)]:
        raise ValueError(f"its config has {strange[0]}, which is not a plain value")
    model_config = model_config_of(config)
    tokenizer = load_tokenizer(entry(state, "tokenizer", dict))
    shards = ShardIndex.of(path, state)
    if shards:
        state = shards.with_stand_ins(state)
    weights = entry(state, "model", dict)
    unread = weights if at_a_glance else shards.weights if shards else ()
    check_weights(weights, model_config, tokenizer.vocab_size, unread)
    best_at = None if state.get("best_iteration") is None else count(state, "best_iteration")
    text = entry_or_none(state, "text", dict) or {}
    return Checkpoint(
        path=path,
        config=config,
        model_config=model_config,
        tokenizer=tokenizer,
        weights=weights,
        iteration=count(state, "iter_num"),
        best_val_loss=best_loss(state),
        best_iteration=best_at,
        source=entry_or_none(text, "source", str),
        text_sha256=entry_or_none(text, "sha256", str),
        optimizer=entry_or_none(state, "optimizer", dict),
        scaler=entry_or_none(state, "scaler", dict),
        random_states=entry_or_none(state, "random_states", dict),
        shards=shards,
    )


def is_plain(value: object) -> bool:
    """Whether a configuration can hold `value`.

    Values are compared and printed, which does not work with a tensor.
    """
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (str, int, float))


def model_config_of(config: Mapping[str, Value]) -> ModelConfig:
    """The model's part of a saved configuration; keys that it is older than get their old values.

    Raises KeyError or ValueError naming the key that is wrong.
    """
    values: dict[str, Any] = {}  # each of its key's type, which the loop checks
    for name, key in keys(ModelConfig).items():
        value = config[name] if key.before is None else config.get(name, key.before)
        values[name] = value
        kinds = (int, float) if key.kind is float else (key.kind,)
        if not isinstance(value, kinds) or isinstance(value, bool) and key.kind is not bool:
            raise ValueError(f"{name}={spell(value)[:40]} is not of type {key.kind.__name__}")
    return ModelConfig(**values)


def check_weights(
    weights: object, config: ModelConfig, vocab_size: int, unread: Collection[str] = ()
) -> None:
    """Compares names and shapes with the model of `config`, without allocating its tensors.

    Raises ValueError if they differ or a weight is not finite. Weights named in `unread` are not
    looked at: whoever reads them has to check that they are finite.
    """
    if not isinstance(weights, dict) or not all(isinstance(w, Tensor) for w in weights.values()):
        raise ValueError("its model is not a dictionary of tensors")
    blocks = {str(name).split(".")[2] for name in weights if str(name).count(".") > 2}
    if len(blocks) != config.n_layer:  # first, because `expected` makes all n_layer blocks
        raise ValueError(
            f"n_layer={config.n_layer}, but the file has weights of {len(blocks)} blocks"
        )
    with torch.device("meta"):
        expected = model_to_fill(config, vocab_size).state_dict()
    if unlike := sorted(set(weights) ^ set(expected), key=str):
        missing = unlike[0] in expected
        raise ValueError(f"its model {'has no' if missing else 'has an unknown'} {unlike[0]}")
    for name, weight in weights.items():
        if weight.shape != expected[name].shape:
            shapes = f"{tuple(weight.shape)}, not {tuple(expected[name].shape)}"
            raise ValueError(f"its weights do not fit its configuration: {name} is {shapes}")
        if not weight.is_floating_point():
            raise ValueError(f"its weights are invalid: {name} has dtype {weight.dtype}")
        if name not in unread and not weight.isfinite().all():
            raise ValueError(f"its weights are invalid: {name} has values that are not finite")


def model_to_fill(config: ModelConfig, vocab_size: int) -> GPT:
    """A model whose weights are uninitialised memory, to load others into.

    To draw 124 million random weights would take 5 s.
    """
    with WithoutInit():
        return make_model(config, vocab_size)


def count(state: Mapping[str, object], name: str) -> int:
    """The iteration number state[name]. Raises ValueError if it is no integer from 0 up."""
    value = state[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r:.40}, not a number of at least 0")
    return value


def best_loss(state: Mapping[str, object]) -> float:
    value = state.get("best_val_loss", math.inf)
    if not isinstance(value, (int, float)) or math.isnan(value):
        raise ValueError(f"best_val_loss is {value!r:.40}, not a number")
    return float(value)


def check_optimizer(checkpoint: Checkpoint, expected: dict[int, dict[str, torch.Size]]) -> None:
    """Raises ValueError if the optimizer's state is incomplete, not finite or of other shapes.

    `expected` has the shape of each tensor of the state, by parameter number.
    """
    states = checkpoint.optimizer or {}
    in_shards = checkpoint.shards.moments if checkpoint.shards else {}
    for number, shapes in expected.items():
        state = states.get(number)
        if not isinstance(state, dict) or len(states) != len(expected):
            raise ValueError(
                f"{checkpoint.path}: has the optimizer state of only {len(states)} of "
                f"{len(expected)} parameters; sample.py can use this file, but a resume cannot: "
                f"{AGAIN}"
            )
        for name, shape in shapes.items():
            value = state.get(name)
            later = name in in_shards.get(number, {})  # its reader checks that it is finite
            if (
                not isinstance(value, Tensor)
                or value.shape != shape
                or not (later or value.isfinite().all())
            ):
                raise ValueError(
                    f"{checkpoint.path}: the optimizer's {name} of parameter {number} is missing, "
                    f"of another shape or not finite; {AGAIN}"
                )
