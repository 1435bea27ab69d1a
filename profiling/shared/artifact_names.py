"""Names of artifacts in W&B: one for each configuration, whose versions are its runs.

So the captures of two seeds, or of last week and today, stand in one list. Used by
training.metrics.wandb_facts and profiling.launch.wandb_log; which keys make a configuration is
what the dashboard groups runs by, too.
"""

import hashlib
import json
import re

from profiling.shared.records import JsonObject

# keys and sections that name a run or say how it is watched, and the seed
NOT_THE_CONFIGURATION: tuple[str, ...] = ("seed", "out_dir", "wandb", "profile", "init_from")
NOT_THE_CONFIGURATION += ("log_interval", "always_save_checkpoint", "offline_fallback")
NOT_THE_CONFIGURATION += ("data_source", "eval_only", "gpu_metrics", "keep_previous", "tensorboard")
NOT_THE_CONFIGURATION += ("exact_resume", "eval_batch_size", "compile_cache", "go_on", "weights")
NOT_THE_CONFIGURATION += ("checkpoint_interval_s",)
NO_KEYS = ("in_force", "experiment")  # entries beside the keys in config.yaml, and in W&B


def how_it_runs(keys: JsonObject) -> str:
    """How the model runs: compile, fused (this project's own kernels without the compiler) or
    eager."""
    if keys.get("compile"):
        return "compile"
    return "fused" if keys.get("kernels") == "fused" else "eager"


def artifact_name(kind: str, config: JsonObject, attention: str | None) -> str:
    """Name such as capture-shakespeare_char-flash-compile-1f3a90bc, whose last part is a digest of
    all keys that make the configuration.

    `attention` is the backend that ran; it replaces the key's value where that was left at auto.
    """
    left_out = {*NOT_THE_CONFIGURATION, *NO_KEYS}
    keys = {key: value for key, value in config.items() if key not in left_out}
    if keys.get("attention") == "auto" and attention:
        keys["attention"] = attention
    digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:8]
    words = (kind, keys.get("dataset"), keys.get("attention"), how_it_runs(keys), digest)
    return re.sub(r"[^\w.-]+", "-", "-".join(map(str, words)), flags=re.ASCII)
