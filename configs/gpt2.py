"""GPT-2's sizes: the model's shape with init_from=gpt2 and the like, before its weights are read.

Called by configs.compose, which fills the model's keys in, and by sample.py.
"""

import json
from pathlib import Path

from cli.keys import Value, spell
from configs import files
from configs.model import GPT2_SIZES

# keys that the weights decide; CONTEXT may be shorter than theirs
SHAPE = ("n_layer", "n_head", "n_embd", "bias", "activation")
CONTEXT = "block_size"
POSITIONS: dict[str, Value] = {"positions": "learned"}  # every size has these
WHOLE, PARTS = "model.safetensors", "model-*-of-*.safetensors"  # transformers' file names
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# transformers' name of an activation -> ours; an export writes the first name of each of ours
ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
# entries of config.json with the only value that model.GPT supports, which is transformers' default
FIXED: dict[str, Value] = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def shape_of(init_from: str, weights: str | None) -> dict[str, Value]:
    """The model's keys and values with these weights, {} for a start without: scratch, resume.

    They come from the file of configs/ for one of GPT-2's sizes, else from config.json beside the
    weights. Raises ValueError if that cannot be read.
    """
    if init_from in GPT2_SIZES:
        values = files.load(files.FOLDER / f"{init_from}.yaml")
        return {name: values[name] for name in (*SHAPE, CONTEXT)} | POSITIONS
    if init_from == "weights" and weights:
        return transformers_shape(weights_files(weights)[0].with_name("config.json"))
    return {}


def weights_files(weights: str) -> list[Path]:
    """The .safetensors files that weights=PATH means: one, or the parts in a folder.

    Raises ValueError if there are none: a pickle, which may run any code, is not opened.
    """
    path, key = Path(weights).expanduser(), f"weights={weights}"
    paths = [path]
    if path.is_dir():
        paths = [path / WHOLE] if (path / WHOLE).is_file() else sorted(path.glob(PARTS))
    if paths and paths[0].suffix == ".safetensors":
        if not paths[0].is_file():
            raise ValueError(f"{key}: no such file")
        return paths
    pickles = [file for file in (path, *path.glob("*")) if file.suffix in PICKLES]
    if pickles:
        raise ValueError(
            f"{key}: {pickles[0].name} is a pickle, which may run any code, so it was not "
            "opened; give a .safetensors file as written by transformers' save_pretrained"
        )
    what = f"contains no {WHOLE}" if path.is_dir() else "is not a .safetensors file"
    raise ValueError(f"{key}: {what if path.exists() else 'no such file or folder'}")


def transformers_shape(path: Path) -> dict[str, Value]:
    """The model's keys and values from transformers' config.json. Raises ValueError."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict) or config.get("model_type") != "gpt2":
            raise ValueError("not the configuration of a GPT-2 (model_type)")
        check_fixed(config)
        shape: dict[str, Value] = {
            "n_layer": config["n_layer"],
            "n_head": config["n_head"],
            "n_embd": config["n_embd"],
            "bias": True,
            "activation": ACTIVATIONS[config.get("activation_function", "gelu_new")],
            CONTEXT: config["n_positions"],
            **POSITIONS,
        }
        for name in ("n_layer", "n_head", "n_embd", CONTEXT):
            if type(shape[name]) is not int:
                raise ValueError(f"{name}={spell(shape[name])[:40]} is not a whole number")
    except FileNotFoundError:
        raise ValueError(
            f"init_from=weights: {path} is missing, which contains the model's shape; "
            "transformers' save_pretrained writes this file; init_from=gpt2, gpt2_medium, ... "
            "do not need it"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = (
            (f"has missing or unknown values: {error}")
            if isinstance(error, KeyError)
            else str(error)
        )
        raise ValueError(f"{path}: cannot be used: {reason}") from error
    return shape


def check_fixed(config: dict[str, Value]) -> None:
    """Raise ValueError if the config.json describes a model that model.GPT does not compute."""
    for name, only in FIXED.items():
        if config.get(name, only) != only:
            raise ValueError(f"{name}={spell(config[name])} is not supported, only {spell(only)}")
    width, inner = config["n_embd"], config.get("n_inner")
    if inner is not None and isinstance(width, int) and inner != 4 * width:
        raise ValueError(f"n_inner={spell(inner)} is not supported, only 4 n_embd")
