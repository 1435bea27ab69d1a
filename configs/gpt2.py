"""GPT-2's sizes: what init_from=gpt2 and the like say of the model before its weights are read.

Called by configs.compose, which fills the model's keys in, and by sample.py.
"""

import json
from pathlib import Path

from cli.keys import Value, spell
from configs import files
from configs.model import GPT2_SIZES

# of a configuration: those that the weights decide; they may be read for a shorter context
SHAPE = ("n_layer", "n_head", "n_embd", "bias", "activation")
CONTEXT = "block_size"
POSITIONS: dict[str, Value] = {"positions": "learned"}  # in every size
WHOLE, PARTS = "model.safetensors", "model-*-of-*.safetensors"  # as transformers writes them
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# transformers' name of an activation -> ours, the one that it is written with again first
ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
# of config.json: what GPT-2 here cannot do otherwise, with transformers' defaults
FIXED: dict[str, Value] = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def shape_of(init_from: str, weights: str | None) -> dict[str, Value]:
    """The model's keys with these weights, empty where it begins without: scratch, resume.

    Of one of GPT-2's sizes they stand in its file of configs/, else in config.json beside the
    weights. Raises ValueError where that cannot be read.
    """
    if init_from in GPT2_SIZES:
        values = files.load(files.FOLDER / f"{init_from}.yaml")
        return {name: values[name] for name in (*SHAPE, CONTEXT)} | POSITIONS
    if init_from == "weights" and weights:
        return of_transformers(weights_files(weights)[0].with_name("config.json"))
    return {}


def weights_files(weights: str) -> list[Path]:
    """The .safetensors files that weights=PATH means: one, or the parts in a folder.

    Raises ValueError where there are none: a pickle, which may run any code, is not opened.
    """
    path, key = Path(weights).expanduser(), f"weights={weights}"
    found = [path]
    if path.is_dir():
        found = [path / WHOLE] if (path / WHOLE).is_file() else sorted(path.glob(PARTS))
    if found and found[0].suffix == ".safetensors":
        if not found[0].is_file():
            raise ValueError(f"{key}: no such file")
        return found
    pickles = [each for each in (path, *path.glob("*")) if each.suffix in PICKLES]
    if pickles:
        raise ValueError(
            f"{key}: {pickles[0].name} is a pickle, which may run any code: not opened; "
            "give a .safetensors file, as transformers' save_pretrained writes it"
        )
    what = f"has no {WHOLE}" if path.is_dir() else "is no .safetensors file"
    raise ValueError(f"{key}: {what if path.exists() else 'no such file or folder'}")


def of_transformers(path: Path) -> dict[str, Value]:
    """The model's keys from a config.json. Raises ValueError."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(said, dict) or said.get("model_type") != "gpt2":
            raise ValueError("no configuration of a GPT-2 (model_type)")
        check_fixed(said)
        shape: dict[str, Value] = {
            "n_layer": said["n_layer"],
            "n_head": said["n_head"],
            "n_embd": said["n_embd"],
            "bias": True,
            "activation": ACTIVATIONS[said.get("activation_function", "gelu_new")],
            CONTEXT: said["n_positions"],
            **POSITIONS,
        }
        for name in ("n_layer", "n_head", "n_embd", CONTEXT):
            if type(shape[name]) is not int:
                raise ValueError(f"{name}={spell(shape[name])[:40]} is no whole number")
    except FileNotFoundError:
        raise ValueError(
            f"init_from=weights: there is no {path}, which says the model's shape; transformers' "
            "save_pretrained writes one; init_from=gpt2 and the like need none"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"lacks or does not know {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: cannot be used: {reason}") from error
    return shape


def check_fixed(said: dict[str, Value]) -> None:
    """Raises ValueError where the file asks for a function that is not that of model.GPT."""
    for name, only in FIXED.items():
        if said.get(name, only) != only:
            raise ValueError(f"{name}={spell(said[name])} is not supported, only {spell(only)}")
    width, inner = said["n_embd"], said.get("n_inner")
    if inner is not None and isinstance(width, int) and inner != 4 * width:
        raise ValueError(f"n_inner={spell(inner)} is not supported, only 4 n_embd")
