"""Check whether two sides did the same work under the same conditions. Called by comparison."""

from collections.abc import Iterator

from configs.schema import role_of
from profiling.analysis.difference.compared import Compared, Environment
from profiling.analysis.difference.comparison_records import COMMAND, Pair
from profiling.analysis.runs.configuration import flatten, is_work, leading_keys, same_work
from profiling.shared.json_records import JsonObject
from profiling.timeline.trace import TOOLS

PACKAGES = ("torch", "triton")


def config_differences(
    baseline: JsonObject | None, candidate: JsonObject | None
) -> dict[str, Pair] | None:
    """Key -> both values where they differ, without names and folders.

    Only the command, if one side is a program of others, which has no keys. None where a side has
    no configuration.
    """
    if not baseline or not candidate:
        return None
    one, other = flatten(baseline), flatten(candidate)
    if (COMMAND in one) != (COMMAND in other):
        return {COMMAND: Pair(one.get(COMMAND), other.get(COMMAND))}
    return {
        key: Pair(one.get(key), other.get(key))
        for key in one | other
        if role_of(key) != "place" and one.get(key) != other.get(key)
    }


def timed_keys(differences: dict[str, Pair]) -> list[str]:
    """The differing keys that change what a step does, or how it does it."""
    differ = differences.items()
    return leading_keys([key for key, pair in differ if not same_work(key, *pair.values)])


def factor(differences: dict[str, Pair] | None) -> str | None:
    """The only key in which two runs differ, or None if there are several or none."""
    telling = timed_keys(differences or {})
    return telling[0] if len(telling) == 1 else None


def reasons_against(
    baseline: Compared, candidate: Compared, differences: dict[str, Pair] | None
) -> Iterator[str]:
    """A line for each reason why the two sides do not compare.

    That one is another program is the only reason then, since the others follow from it.
    """
    pair = (differences or {}).get(COMMAND)
    if pair and pair.commands is None:
        foreign, own = (baseline, candidate) if pair.baseline else (candidate, baseline)
        yield f"{foreign.file} is a run of another program than {own.file}, a run of train.py"
        return
    for what, one, other in (
        ("GPU", baseline.device, candidate.device),
        ("kind of capture", *(TOOLS.get(side.kind, side.kind) for side in (baseline, candidate))),
        ("step", baseline.step_name, candidate.step_name),
    ):
        if None not in (one, other) and one != other:
            yield f"{what} {one} against {other}"
    yield from work_reasons(differences)
    if (baseline.on_cpu or candidate.on_cpu) and (cores := core_differences(baseline, candidate)):
        yield cores
    versions, others = versions_of(baseline.environment), versions_of(candidate.environment)
    for name, version in versions.items():
        if name in others and version != others[name]:
            yield f"{name} {version} against {others[name]}"


def work_reasons(differences: dict[str, Pair] | None) -> Iterator[str]:
    """A line for each key that differs and makes a step do different work."""
    for key, pair in (differences or {}).items():
        if is_work(key):
            yield f"{key} {pair.baseline} against {pair.candidate}"


def core_differences(baseline: Compared, candidate: Compared) -> str:
    """The threads and cores that each side may use; empty where they are equal or not known."""
    one, other = (side.environment for side in (baseline, candidate))
    pairs = (
        (one.compute_threads, other.compute_threads),
        (one.usable_cores, other.usable_cores),
    )
    if not any(None not in pair and pair[0] != pair[1] for pair in pairs):
        return ""
    return f"cores {cores_words(one)} against {cores_words(other)}"


def cores_words(environment: Environment) -> str:
    threads, cores = environment.compute_threads, environment.usable_cores
    known = [
        f"{count} {what if count == 1 else what + 's'}"
        for count, what in ((threads, "thread"), (cores, "usable core"))
        if count is not None
    ]
    return " on ".join(known) or "an unknown number"


def versions_of(environment: Environment) -> JsonObject:
    """Versions of the libraries that decide how fast a step is, as far as they are known."""
    versions: JsonObject = {name: environment.packages.get(name) for name in PACKAGES}
    versions |= {"cuda": environment.cuda, "cudnn": environment.cudnn}
    return {name: version for name, version in versions.items() if version is not None}


def commit(environment: Environment) -> str | None:
    """The short commit, and that files differed from it, or None."""
    if environment.git is None:
        return None
    return environment.git.commit[:10] + (" with changes" if environment.git.dirty else "")
