"""Define what the keys of a configuration mean when runs are set side by side.

Called by groups, and by profiling.analysis.difference.
"""

from collections.abc import Collection

from profiling.shared.records import JsonObject

# keys that change the work of a step: they explain a difference, whatever else was changed
WORK: tuple[str, ...] = ("batch_size", "block_size", "gradient_accumulation_steps", "n_layer")
WORK += ("n_head", "n_embd", "bias", "dropout", "dtype", "dataset", "data_source", "tokenizer")
WORK += ("bpe_vocab_size", "activation", "positions", "optimizer", "residual_dtype")
# keys that older runs do not have -> the value that those were trained with
YOUNGER: JsonObject = {
    "activation": "gelu",
    "positions": "learned",
    "optimizer": "adamw",
    "residual_dtype": "float32",
}
# keys and sections that leave the work of a step as it is: the length of a run, what it starts
# from, how it is watched and stored, numbers that only enter the arithmetic. No difference is
# named after them
UNTIMED: tuple[str, ...] = ("seed", "max_iters", "lr_decay_iters", "warmup_iters", "learning_rate")
UNTIMED += ("min_lr", "decay_lr", "lr_decay", "weight_decay", "beta1", "beta2")
UNTIMED += ("eval_interval", "eval_iters", "eval_batch_size", "eval_only", "log_interval")
UNTIMED += ("init_from", "weights", "go_on", "exact_resume", "offline_fallback")
UNTIMED += ("out_dir", "keep_previous", "always_save_checkpoint", "checkpoint_interval_s")
UNTIMED += ("compile_cache", "profile", "gpu_metrics", "tensorboard", "wandb")
SWITCHED_OFF_BY_0 = ("grad_clip",)  # any two values that are not 0 are the same work
# key -> the key by whose value `auto` decides it
FOLLOWS = {"cuda_graphs": "compile", "compile_scope": "compile", "compile": "kernels"}


def flatten(config: JsonObject, prefix: str = "") -> JsonObject:
    """Flatten sections: {"profile": {"steps": 20}} becomes {"profile.steps": 20}.

    Keys that are younger than the run are added with the value that it was trained with.
    """
    values: JsonObject = {} if prefix else dict(YOUNGER)
    for key, value in config.items():
        if isinstance(value, dict):
            values |= flatten(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values


def top_level(key: str) -> str:
    """The section of a key (profile for profile.steps), or the key itself without a section."""
    return key.split(".")[0]


def leading_keys(keys: Collection[str]) -> list[str]:
    """The keys without those that only follow another one of them (see FOLLOWS)."""
    return [key for key in keys if FOLLOWS.get(key) not in keys]


def same_work(key: str, value: object, other: object) -> bool:
    """Whether a step does the same work with either value of the key."""
    if key in SWITCHED_OFF_BY_0:
        return bool(value) == bool(other)
    return value == other or top_level(key) in UNTIMED
