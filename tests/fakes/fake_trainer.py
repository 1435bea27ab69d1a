"""Stand-in for train.py in tests of `ab`: writes the files of a run, with made-up step times.

FAKE_LOG gets a line for each start. FAKE_FAIL=N: the Nth start fails; FAKE_HANG=N: it hangs.
"""

import json
import math
import os
import random
import sys
import time
from pathlib import Path

COMPILE_S = {"slow": None, "flash": 3.0, "math": 2.0}  # of the first two starts; later a third
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
    compile_s = COMPILE_S[config["attention"]]
    if compile_s and start > 2:
        compile_s /= 3
    elapsed_s = begin_s = 1 + (compile_s or 0)
    times = []
    with open(out_dir / "metrics.jsonl", "w") as file:
        file.write(json.dumps({"run": {}, "iter": 0}) + "\n")
        for iteration in range(int(words["max_iters"])):
            ms = level * (5 if iteration < 50 else 1) * math.exp(random.gauss(0, 0.001))
            elapsed_s += ms / 1e3
            times.append(ms)
            if iteration % int(words["log_interval"]):
                continue
            row = {"iter": iteration, "time/step_ms": ms, "perf/tokens_per_s": tokens / ms * 1e3}
            file.write(json.dumps(row | {"time/elapsed_s": elapsed_s}) + "\n")
    (out_dir / "step_times.json").write_text(json.dumps({"first_iteration": 0, "ms": times}))
    summary = {"wall_s": elapsed_s - begin_s, "time/compile_s": compile_s, "time/capture_s": 0.5}
    (out_dir / "summary.json").write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
