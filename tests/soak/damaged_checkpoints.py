"""Damaged checkpoints: used as they were, or refused in one line that names them.

Each is loaded as sample.py loads it, and resumed and trained on for an iteration.
"""

import copy
import io
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import torch

import sample
import train
from configs import command_line
from configs.sampling import SampleConfig
from profiling.recording.spans import NoSpans
from tests.soak import bad_inputs, damage, forks, fuzz, tiny_run
from tests.soak.trials import Trial
from training.checks import resolve_and_check
from training.disk import checkpoint_file
from training.disk.run_folder import RunFolder
from training.ranks.distributed import join_run

TENSORS = (torch.zeros(3), torch.full((2, 2), float("nan")), torch.tensor(1 << 62))
CHECKPOINT = "ckpt.pt"
OK = ("ok", None)


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Damage a checkpoint for each seed; none is ended at the limit."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, chdir(folder):
        forks.use_data_folder(Path(folder) / "data")
        bad_inputs.prepare_folder(Path("nowhere"))
        made = forks.run_in_fork(forks.program("train", [bad_inputs.FILE]), {}, 60)
        if made.status:
            raise ValueError(f"the run whose checkpoint is damaged failed: {made.err}")
        path = Path("out", CHECKPOINT)
        whole, state = path.read_bytes(), checkpoint_file.read_state(path)
        for number in range(seed, seed + count):
            yield checkpoint_trial(number, path, whole, state)


def checkpoint_trial(seed: int, path: Path, whole: bytes, state: dict[str, object]) -> Trial:
    """Damage a checkpoint in its bytes or, more often, in its entries, and try to use it."""
    chance = random.Random(f"checkpoint {seed}")
    by_bytes = chance.random() < 0.4
    if by_bytes:
        path.write_bytes(chance.choice((damage.flip_bytes, damage.cut_off))(whole, chance))
    else:
        path.write_bytes(with_other_entries(state, chance))
    kind = "checkpoint's bytes" if by_bytes else "checkpoint's entries"
    said = [refusal(path, use) for use in (sampled, resumed)]
    for outcome, what in said:
        if what:
            return Trial(seed, kind, outcome, what)
    if by_bytes and said == [OK, OK]:
        changed = tiny_run.difference(state, checkpoint_file.read_state(path))
        return Trial(seed, kind, "changed" if changed else "ok", changed)
    (to_sample, _), (to_resume, _) = said
    outcome = to_sample if to_sample == to_resume else f"resume {to_resume}"
    return Trial(seed, kind, outcome)


def refusal(path: Path, use: Callable[[], object]) -> tuple[str, str | None]:
    """(outcome, what is wrong with it or None) of one use of a damaged checkpoint."""
    try:
        with warnings.catch_warnings(action="ignore"):
            use()
    except ValueError as error:
        said = str(error)
        clear = "\n" not in said and (path.name in said or "checkpoint" in said)
        return ("refused", None) if clear else ("unclear", f"{use.__name__}: {said[:200]}")
    except Exception as error:
        return "traceback", f"{use.__name__}: {fuzz.describe_error(error)}"
    return OK


def sampled() -> None:
    sample.load_model(SampleConfig(out_dir="out"), torch.device("cpu"), "float32")


def resumed() -> None:
    """Resume the checkpoint and train one iteration, which uses all that was loaded."""
    with join_run("cpu") as ranks:
        words = [bad_inputs.FILE, "init_from=resume", "max_iters=9"]
        config = resolve_and_check(command_line.compose_one(words), ranks.device, 1)
        run = train.run_of(config, {}, ranks, RunFolder(Path("out")), NoSpans())
        train.accumulate(run.step, run.train_batches, run.progress.iteration, NoSpans())
        run.step.update(1e-3)


def with_other_entries(state: dict[str, object], chance: random.Random) -> bytes:
    """Checkpoint as torch saves it, with one entry, possibly a nested one, removed or replaced."""
    changed = copy.deepcopy(state)
    place: dict[str, object] = changed
    key = chance.choice(list(place))
    while isinstance(inner := place[key], dict) and inner and chance.random() < 0.5:
        place, key = inner, chance.choice(list(inner))
    if chance.random() < 0.3:
        del place[key]
    else:
        place[key] = chance.choice((*damage.HOSTILE_VALUES, *TENSORS))
    content = io.BytesIO()
    torch.save(changed, content)
    return content.getvalue()
