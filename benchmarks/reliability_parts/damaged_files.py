"""Damaged checkpoints and metrics files: read as they were, or refused in one line that names them.

A run's files go through `dashboard` and `compare`, as in `python -m benchmarks fuzz`. A checkpoint
loads as sample.py loads it: what comes of a damaged one is what was saved, or one line.
"""

import copy
import io
import random
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import torch

import sample
from benchmarks import damage, fuzz
from benchmarks.reliability_parts import bad_inputs, forks, tiny_run
from benchmarks.reliability_parts.trial import Trial
from configs.sampling import SampleConfig
from profiling.report.renderers import page
from training import checkpoint_file

TENSORS = (torch.zeros(3), torch.full((2, 2), float("nan")), torch.tensor(1 << 62))
CHECKPOINT, RUN = "ckpt.pt", "run"


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Of checkpoints and runs in turn."""
    signal.signal(signal.SIGALRM, fuzz.stop)
    page.plotly_js = str  # 5 MB that are the same on each page
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder, chdir(folder):
        forks.use_data_folder(Path(folder) / "data")
        bad_inputs.prepare_folder(Path("nowhere"))
        made = forks.forked(forks.program("train", [bad_inputs.FILE]), {}, 60)
        if made.status:
            raise ValueError(f"the run whose checkpoint is damaged failed: {made.err}")
        path = Path("out", CHECKPOINT)
        whole, state = path.read_bytes(), checkpoint_file.unpacked(path)
        for number in range(seed, seed + count):
            if number % 2:
                outcome, what = fuzz.worst(RUN, number, int(limit_s))
                yield Trial(number, "run", outcome, what or None)
            else:
                yield of_checkpoint(number, path, whole, state)


def of_checkpoint(seed: int, path: Path, whole: bytes, state: dict[str, object]) -> Trial:
    """One that was damaged by its bytes, or, more often, by what is in it."""
    chance = random.Random(f"checkpoint {seed}")
    by_bytes = chance.random() < 0.4
    if by_bytes:
        path.write_bytes(chance.choice((damage.flipped, damage.cut))(whole, chance))
    else:
        path.write_bytes(with_other_entries(state, chance))
    kind = "checkpoint's bytes" if by_bytes else "checkpoint's entries"
    try:
        with warnings.catch_warnings(action="ignore"):
            checkpoint_file.load(path)
            found = checkpoint_file.unpacked(path)
            sample.load_model(SampleConfig(out_dir="out"), torch.device("cpu"), "float32")
    except ValueError as error:
        said = str(error)
        clear = str(path) in said and "\n" not in said
        return Trial(seed, kind, *(("refused",) if clear else ("unclear", said[:200])))
    except Exception as error:
        return Trial(seed, kind, "traceback", fuzz.where(error))
    if by_bytes and (changed := tiny_run.difference(state, found)):
        return Trial(seed, kind, "changed", changed)
    return Trial(seed, kind, "ok")


def with_other_entries(state: dict[str, object], chance: random.Random) -> bytes:
    """As torch saves it: an entry, or one inside of it, is gone or something else."""
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
