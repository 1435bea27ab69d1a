"""What the keys of a configuration mean when runs are set side by side.

Called by groups, and by profiling.analysis.difference.
"""

from collections.abc import Collection

from profiling.records import JsonObject

# other values of these make a step do other work: the difference is theirs, not the change's
WORK: tuple[str, ...] = ("batch_size", "block_size", "gradient_accumulation_steps", "n_layer")
WORK += ("n_head", "n_embd", "bias", "dropout", "dtype", "dataset", "data_source", "tokenizer")
WORK += ("bpe_vocab_size", "activation", "residual_dtype")
# of them what runs that are older than the key were trained with
YOUNGER: JsonObject = {"activation": "gelu", "residual_dtype": "float32"}
# keys and sections that say how long a run is and how it is watched: they do not name a difference
UNTIMED: tuple[str, ...] = ("seed", "max_iters", "lr_decay_iters", "warmup_iters", "learning_rate")
UNTIMED += ("min_lr", "eval_interval", "eval_iters", "log_interval", "profile", "compile_cache")
UNTIMED += ("go_on",)
FOLLOWS = {"cuda_graphs": "compile", "compile_scope": "compile"}  # `auto` settles them by the other


def flatten(config: JsonObject, prefix: str = "") -> JsonObject:
    """{"profile": {"steps": 20}} as {"profile.steps": 20}; keys younger than the run among them."""
    values: JsonObject = {} if prefix else dict(YOUNGER)
    for key, value in config.items():
        if isinstance(value, dict):
            values |= flatten(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values


def top_level(key: str) -> str:
    """profile, of profile.steps; a key without a section is its own."""
    return key.split(".")[0]


def leading(keys: Collection[str]) -> list[str]:
    """Without those that only follow another of them."""
    return [key for key in keys if FOLLOWS.get(key) not in keys]


def factor(differing: Collection[str]) -> str | None:
    """The one key that tells two runs apart; None if there are several or none."""
    telling = leading([key for key in differing if top_level(key) not in UNTIMED])
    return telling[0] if len(telling) == 1 else None
