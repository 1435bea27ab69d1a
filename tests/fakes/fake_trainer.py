"""Stands in for train.py in tests of `ab`: writes the files of a run, with made-up step times.

FAKE_LOG gets a line for each start. FAKE_FAIL=N: the Nth start fails; FAKE_HANG=N: it never ends.
"""

import json
import math
import os
import random
import sys
import time
from pathlib import Path

KEYS = {"attention": "slow", "batch_size": 4, "block_size": 32, "gradient_accumulation_steps": 1}
MS = {"slow": 10.0, "flash": 8.0, "math": 10.0}


def main() -> None:
    words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    log = Path(os.environ["FAKE_LOG"])
    with open(log, "a") as file:
        file.write(" ".join(sys.argv[1:]) + "\n")
    start = len(log.read_text().splitlines())
    if os.environ.get("FAKE_FAIL") == str(start):
        print("Traceback ...\nRuntimeError: the GPU has left the building")
        raise SystemExit(1)
    if os.environ.get("FAKE_HANG") == str(start):
        print("hanging", flush=True)
        time.sleep(60)
    config = {key: type(value)(words.get(key, value)) for key, value in KEYS.items()}
    out_dir = Path(words["out_dir"])
    out_dir.mkdir(parents=True)
    # JSON is YAML too
    (out_dir / "config.yaml").write_text(json.dumps(config | {"in_force": {"device": "cpu"}}))
    (out_dir / "environment.json").write_text("{}")
    (out_dir / "ckpt.pt").write_bytes(b"weights")
    random.seed(start)
    level = MS[config["attention"]] * config["batch_size"] / 4 * math.exp(random.gauss(0, 0.002))
    tokens = config["batch_size"] * config["block_size"]
    with open(out_dir / "metrics.jsonl", "w") as file:
        file.write(json.dumps({"run": {}, "iter": 0}) + "\n")
        for iteration in range(0, int(words["max_iters"]), int(words["log_interval"])):
            ms = level * (5 if iteration < 50 else 1) * math.exp(random.gauss(0, 0.001))
            row = {"iter": iteration, "time/step_ms": ms, "perf/tokens_per_s": tokens / ms * 1e3}
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
