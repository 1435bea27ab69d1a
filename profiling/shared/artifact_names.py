"""Names of artifacts in W&B: one for each configuration, whose versions are its runs.

So the captures of two seeds, or of last week and today, stand in one list. Used by
training.metrics.wandb_facts and profiling.launch.wandb_log; which keys make a configuration is
what the dashboard groups runs by, too.
"""

import hashlib
import json
import re

from configs.schema import role_of
from profiling.shared.json_records import JsonObject

NO_KEYS = ("in_force", "experiment")  # entries beside the keys in config.yaml, and in W&B


def defines_configuration(key: str) -> bool:
    """Whether runs that differ in the key, or section, are of different configurations.

    Those of one have each their seed, and a text is known by its content, wherever it was read.
    """
    return key not in ("seed", "data_source") and role_of(key) not in ("watching", "start", "place")


def how_it_runs(keys: JsonObject) -> str:
    """Way in which the model runs: compile, fused (this project's own kernels without the
    compiler) or eager."""
    if keys.get("compile"):
        return "compile"
    return "fused" if keys.get("kernels") == "fused" else "eager"


def artifact_name(kind: str, config: JsonObject, attention: str | None) -> str:
    """Name such as capture-shakespeare_char-flash-compile-1f3a90bc, whose last part is a digest of
    all keys that make the configuration.

    `attention` is the backend that ran; it replaces the key's value where that was left at auto.
    """
    of_keys = {key: value for key, value in config.items() if key not in NO_KEYS}
    keys = {key: value for key, value in of_keys.items() if defines_configuration(key)}
    if keys.get("attention") == "auto" and attention:
        keys["attention"] = attention
    digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:8]
    words = (kind, keys.get("dataset"), keys.get("attention"), how_it_runs(keys), digest)
    return re.sub(r"[^\w.-]+", "-", "-".join(map(str, words)), flags=re.ASCII)
