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
# keys and sections that leave the work of a step as it is: how long a run is, what it begins with,
# how it is watched and kept, numbers that only enter the arithmetic. They do not name a difference
UNTIMED: tuple[str, ...] = ("seed", "max_iters", "lr_decay_iters", "warmup_iters", "learning_rate")
UNTIMED += ("min_lr", "decay_lr", "lr_decay", "weight_decay", "beta1", "beta2")
UNTIMED += ("eval_interval", "eval_iters", "eval_batch_size", "eval_only", "log_interval")
UNTIMED += ("init_from", "weights", "go_on", "exact_resume", "offline_fallback")
UNTIMED += ("out_dir", "keep_previous", "always_save_checkpoint", "compile_cache")
UNTIMED += ("profile", "gpu_metrics", "tensorboard", "wandb")
SWITCHED_OFF_BY_0 = ("grad_clip",)  # two other values of these are the same work
# `auto` settles them by the other
FOLLOWS = {"cuda_graphs": "compile", "compile_scope": "compile", "compile": "kernels"}


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


def same_work(key: str, value: object, other: object) -> bool:
    """Whether a step does the same with either value of the key."""
    if key in SWITCHED_OFF_BY_0:
        return bool(value) == bool(other)
    return value == other or top_level(key) in UNTIMED
