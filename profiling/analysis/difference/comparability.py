"""Whether two reports measured the same work under the same conditions, and how they differ.

Called by comparison. Takes reports as docs/report-schema.md describes them.
"""

from typing import Any

# other values of these make a step do other work: the difference is theirs, not the change's
WORK = ("batch_size", "block_size", "gradient_accumulation_steps", "n_layer", "n_head", "n_embd")
WORK += ("bias", "dropout", "dtype", "dataset", "data_source", "tokenizer", "bpe_vocab_size")
PACKAGES = ("torch", "triton")
FEWEST_STEPS = 5
NAMES_ONLY = ("out_dir", "wandb")  # keys and sections that name a run and do nothing in it
# keys that say how long a run is and how it is watched: they do not name a difference
UNTIMED = ("seed", "max_iters", "lr_decay_iters", "warmup_iters", "learning_rate", "min_lr")
UNTIMED += ("eval_interval", "eval_iters", "log_interval", "profile")
FOLLOWS = {"cuda_graphs": "compile", "compile_scope": "compile"}  # `auto` settles them by the other


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"profile": {"steps": 20}} as {"profile.steps": 20}."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values


def config_differences(baseline: dict, candidate: dict) -> dict[str, dict[str, Any]] | None:
    """Key -> both values, names and folders left out; None where a side has no configuration."""
    sides = [
        flat((report.get("run") or {}).get("config") or {}) for report in (baseline, candidate)
    ]
    if not all(sides):
        return None
    keys = [key for key in dict.fromkeys([*sides[0], *sides[1]]) if section(key) not in NAMES_ONLY]
    return {
        key: {"baseline": sides[0].get(key), "candidate": sides[1].get(key)}
        for key in keys
        if sides[0].get(key) != sides[1].get(key)
    }


def section(key: str) -> str:
    return key.split(".")[0]


def factor(differences: dict[str, dict[str, Any]] | None) -> str | None:
    """The one key that tells the two runs apart; None if there are several or none."""
    differences = differences or {}
    telling = [key for key in differences if section(key) not in UNTIMED]
    telling = [key for key in telling if FOLLOWS.get(key) not in telling]
    return telling[0] if len(telling) == 1 else None


def reasons_against(baseline: dict, candidate: dict, differences: dict | None) -> list[str]:
    """Why the two do not compare, a line each; empty where they do."""
    reasons = []
    for what, of in (("GPU", device), ("kind of capture", kind), ("step", step_range)):
        one, other = of(baseline), of(candidate)
        if one is not None and other is not None and one != other:
            reasons.append(f"{what}: {one} against {other}")
    reasons += work_reasons(differences)
    one, other = versions(baseline), versions(candidate)
    for name in one.keys() & other.keys():
        if one[name] != other[name]:
            reasons.append(f"{name}: version {one[name]} against {other[name]}")
    for side, report in (("baseline", baseline), ("candidate", candidate)):
        steps = len(report["window"]["step_ms"]["values"])
        if steps < FEWEST_STEPS:
            reasons.append(
                f"steps: the {side} has {steps}, an interval needs at least {FEWEST_STEPS}"
            )
    return reasons


def work_reasons(differences: dict | None) -> list[str]:
    """The keys of WORK that differ, a line each."""
    pairs = {key: differences[key] for key in WORK if key in (differences or {})}
    return [
        f"{key}: {pair['baseline']} against {pair['candidate']}, so a step does other work"
        for key, pair in pairs.items()
    ]


def device(report: dict) -> str | None:
    """Name of the GPU that the report is about; the device's kind where it is none."""
    devices = {d["id"]: d["name"] for d in report["capture"]["devices"]}
    if devices:
        return devices.get(report["capture"].get("device"), next(iter(devices.values())))
    return ((report.get("run") or {}).get("config") or {}).get("device")


def kind(report: dict) -> str | None:
    """What recorded the step times: a tool, or (in a run folder) the training itself."""
    return "training" if report.get("run_folder") else report["capture"]["kind"]


def step_range(report: dict) -> str | None:
    """What a step is; ranges that only count up have their number taken off by the analysis."""
    return report["window"].get("step_name")


def versions(report: dict) -> dict[str, str]:
    """Of the libraries that make a step fast or slow, as far as they are known."""
    environment = (report.get("run") or {}).get("environment") or {}
    packages = environment.get("packages") or {}
    found = {name: packages.get(name) for name in PACKAGES}
    found |= {name: environment.get(name) for name in ("cuda", "cudnn", "driver")}
    return {name: version for name, version in found.items() if version is not None}


def notes_about(baseline: dict, candidate: dict) -> list[str]:
    """What a reader should know that is no reason against the comparison."""
    notes = []
    sides = (("baseline", baseline), ("candidate", candidate))
    for side, report in sides:
        run = report.get("run")
        if not run:
            notes.append(
                f"{side}: no manifest beside {report['capture']['file']}, so its batch, model, "
                "dtype and versions could not be checked"
            )
        for finding in (report.get("health") or {}).get("findings", []):
            telling = "scrub" not in (
                finding["cure"] or ""
            )  # what it gives away is beside the point
            if finding["level"] == "warning" and telling:
                notes.append(f"{side}: {finding['what']}")
    commits = [commit(report) for _, report in sides]
    if None not in commits and commits[0] != commits[1]:
        notes.append(f"code: commit {commits[0]} against {commits[1]}")
    return notes


def commit(report: dict) -> str | None:
    """Short, with a + where files differed from it."""
    git = ((report.get("run") or {}).get("environment") or {}).get("git")
    return git["commit"][:10] + ("+" if git["dirty"] else "") if git else None
