"""Whether two sides did the same work under the same conditions. Called by comparison."""

from profiling.analysis.difference.compared import Compared, Environment
from profiling.analysis.difference.records import Pair
from profiling.analysis.runs.configuration import WORK, flatten, top_level
from profiling.records import JsonObject

PACKAGES = ("torch", "triton")
FEWEST_STEPS = 5
NAMES_ONLY = ("out_dir", "wandb")  # keys and sections that name a run and do nothing in it


def config_differences(
    baseline: JsonObject | None, candidate: JsonObject | None
) -> dict[str, Pair] | None:
    """By key, names and folders left out; None where a side has no configuration."""
    if not baseline or not candidate:
        return None
    one, other = flatten(baseline), flatten(candidate)
    return {
        key: Pair(one.get(key), other.get(key))
        for key in one | other
        if top_level(key) not in NAMES_ONLY and one.get(key) != other.get(key)
    }


def reasons_against(
    baseline: Compared, candidate: Compared, differences: dict[str, Pair] | None
) -> list[str]:
    """Why the two do not compare, a line each; empty where they do."""
    facts = (
        ("GPU", baseline.device, candidate.device),
        ("kind of capture", baseline.kind, candidate.kind),
        ("step", baseline.step_name, candidate.step_name),
    )
    reasons = [
        f"{what}: {one} against {other}"
        for what, one, other in facts
        if None not in (one, other) and one != other
    ]
    reasons += work_reasons(differences)
    one, other = versions(baseline.environment), versions(candidate.environment)
    reasons += [
        f"{name}: version {one[name]} against {other[name]}"
        for name in one
        if name in other and one[name] != other[name]
    ]
    return reasons + [
        f"steps: the {which} has {len(side.step_ms)}, an interval needs at least {FEWEST_STEPS}"
        for which, side in (("baseline", baseline), ("candidate", candidate))
        if len(side.step_ms) < FEWEST_STEPS
    ]


def work_reasons(differences: dict[str, Pair] | None) -> list[str]:
    """The keys of WORK that differ, a line each."""
    differences = differences or {}
    return [
        f"{key}: {differences[key].baseline} against {differences[key].candidate}, "
        "so a step does other work"
        for key in WORK
        if key in differences
    ]


def versions(environment: Environment) -> JsonObject:
    """Of the libraries that make a step fast or slow, as far as they are known."""
    found: JsonObject = {name: environment.packages.get(name) for name in PACKAGES}
    found |= {"cuda": environment.cuda, "cudnn": environment.cudnn}
    return {name: version for name, version in found.items() if version is not None}


def commit(environment: Environment) -> str | None:
    """Short, with a + where files differed from it."""
    if environment.git is None:
        return None
    return environment.git.commit[:10] + ("+" if environment.git.dirty else "")
