"""Lines about what the hook has seen of a program, and why there is nothing where there is nothing.

The hook's files are described in profiling/attach/hook/_profiling_attach/run_files.py.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiling.launch.any_program.folder import free_bytes
from profiling.launch.any_program.start import HookSettings
from profiling.shared.json_records import read_json
from profiling.shared.manifest import CapturedWindow
from profiling.shared.metric_names import MEAN_STEP_MS, STEP_MS
from profiling.shared.program_facts import ProgramFacts, read_program_facts
from profiling.shared.run_files import FACTS, PROCESSES
from profiling.shared.units import counted, milliseconds, whole_percent

NEVER = (
    "no Python process of this command read the hook: it is no Python program, it runs in a "
    "container or on another host, python was started with -I, -S or -E (leave these out), or the "
    "command sets PYTHONPATH anew (add :$PYTHONPATH there) or drops it, as env -i and sudo do (let "
    "PYTHONPATH and PROFILING_ATTACH pass)"
)
NO_STEP = (
    "no step was seen: no process imported torch and trained or called a module, or it did not "
    "read the hook (tox, sudo and env -i drop PYTHONPATH and PROFILING_ATTACH: let them pass)"
)
OTHERS = "for other frameworks --kind nsys --whole records everything"
NO_MARK = "no step was seen: the program left no mark of --step {}; leave it out"
KILLED = "the program was killed, or ended by os._exit: rows but for the last half second"
# beginnings of the hook's notes; the first are in processes.jsonl too, from which they are shown
STOPPED, NO_WINDOW = "the hook stopped", "no window of"
OWN_PROFILER = "the program started its own torch.profiler"  # as the hook's window says it
FULL_BYTES = 1_000_000  # a disk with less free is full


@dataclass(frozen=True)
class WindowFile:
    """profile/window-N.json, as far as it is used here."""

    window: CapturedWindow


def lines(folder: Path, settings: HookSettings) -> list[str]:
    """Lines about what was seen. Raises ValueError naming a damaged file."""
    started = processes(folder)
    if not started:
        return [NEVER]
    faults = [row for row in started if "error" in row]
    messages = [f"the hook stopped in process {row['pid']}: {row['error']}" for row in faults]
    trained = {number(path) for path in folder.glob("trained-rank*")}
    facts = {number(p): read_json(p, ProgramFacts) for p in folder.glob(f"{FACTS}/rank*.json")}
    if not trained and not messages:
        messages.append(NO_MARK.format(settings.step) if settings.step else f"{NO_STEP}; {OTHERS}")
    of_ranks: dict[str, list[int]] = {}
    for rank in sorted(trained | set(facts)):
        if rank not in facts and messages:  # the reason is in the messages already
            continue
        for line in lines_of_rank(folder, rank, facts.get(rank), settings):
            of_ranks.setdefault(line, []).append(rank)
    several = len(trained) > 1
    for line, ranks in of_ranks.items():
        word = "ranks" if len(ranks) > 1 else "rank"
        messages.append(f"{word} {', '.join(map(str, ranks))}: {line}" if several else line)
    for other in sorted(folder.glob("process-*")):
        rules = [read_json(path, ProgramFacts) for path in other.glob(f"{FACTS}/rank*.json")]
        made = f"{counted(rules[0].steps, 'step')}; {rules[0].rule}" if rules else "steps"
        who = f"{len(rules)} ranks of another program" if len(rules) > 1 else "another process"
        messages.append(f"{who} of this command made {made}: {other}")
    return messages


def processes(folder: Path) -> list[dict[str, object]]:
    """Rows of processes.jsonl, one for each Python process in which the hook started."""
    rows: list[dict[str, object]] = []
    with suppress(OSError, ValueError):  # a line that was cut by a kill is the last one
        for line in (folder / PROCESSES).read_text().splitlines():
            rows.append(json.loads(line))
    return rows


def number(path: Path) -> int:
    """Rank in the name of one of the hook's files."""
    return int(re.findall(r"rank(\d+)", path.name)[-1])


def lines_of_rank(
    folder: Path, rank: int, facts: ProgramFacts | None, settings: HookSettings
) -> list[str]:
    window = first_window(folder, rank)
    if facts is None:
        if free_bytes(folder) < FULL_BYTES:
            return [f"the disk of {folder} is full: not all could be written"]
        whole = window is not None and window.complete
        return [f"{KILLED}, {'and the window' if whole else 'no window'}"]
    seen = f"{counted(facts.steps, 'step')}; {facts.rule}"
    if facts.skipped_steps:
        seen += f"; {facts.skipped_steps} skipped by the GradScaler"
    notes = [note for note in facts.notes if not note.startswith(STOPPED)]
    without = settings.kind == "none" or any(n.startswith(NO_WINDOW) for n in notes)
    if without or (window is None and len(notes) < len(facts.notes)):
        return [seen, *notes]
    return [seen, *notes, *window_lines(window, facts.steps, settings)]


def used_no_gpu(folder: Path) -> bool:
    """Whether a process of the command says that its window needs a GPU, which it does not use."""
    said = (path.read_text(errors="replace") for path in folder.glob(f"{FACTS}/rank*.json"))
    return any(f'"{NO_WINDOW}' in text for text in said)


def first_window(folder: Path, rank: int) -> CapturedWindow | None:
    """The first window of a rank, or None if it has not closed."""
    for name in (f"window-1-rank{rank}.json", "window-1.json"):
        if (path := folder / "profile" / name).is_file():
            return read_json(path, WindowFile).window
    return None


def window_lines(window: CapturedWindow | None, steps: int, settings: HookSettings) -> list[str]:
    """Why there is no window, or not all of it; [] for a whole one."""
    if window is None:
        made, cure = counted(steps, "step"), earlier(steps, settings.steps)
        return [f"the program made {made} and ended before the window; {cure}"]
    if window.complete:
        return []
    part = f"{window.steps} of {window.steps_asked} steps"
    if window.ended_by == OWN_PROFILER and window.first_iteration is not None:
        began = window.first_iteration + (window.steps or 0)
        return [f"its own torch.profiler began in step {began}: ours ended there, with {part}"]
    return [f"the window ended with {part}: {window.ended_by}"]


def earlier(steps: int, window: int) -> str:
    """Flags that put a window into so many steps, in their middle."""
    if steps > window + 1:
        return f"give --start {(steps - window) // 2}"
    if steps > 2:
        return f"give --start 1 --steps {steps - 2}"
    return "let it run for longer"


def phases_line(folder: Path) -> str | None:
    """Step time and the phases' shares of it on the host, of rank 0; None where not known."""
    summary, facts = folder / "summary.json", read_program_facts(folder, 0)
    if facts is None or not summary.is_file():
        return None
    whole = json.loads(summary.read_text())
    step_ms, mean_ms = float(whole[STEP_MS.name]), float(whole[MEAN_STEP_MS.name])
    whole_ms = facts.timed_step_ms or step_ms
    phases = facts.host_ms if whole_ms else {}  # 0 where the program's clock stands
    shares = ", ".join(f"{name} {whole_percent(ms / whole_ms)}" for name, ms in phases.items())
    said = f"a step takes {milliseconds(step_ms)} ms (median; {milliseconds(mean_ms)} in the mean)"
    return f"{said}; the host is in {shares}" if shares else said
