"""Checkpoints of ranks that share weights: complete or absent, and for any number of ranks."""

import io
import os
import shutil
import signal
import sys
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from data.tokenizers import CharTokenizer
from tests.helpers.checkpoints import open_whole, tiny, tiny_model
from tests.helpers.forked import Forked
from tests.helpers.planted_pickle import Planted
from tests.helpers.ranks import ended_ranks
from training.disk import checkpoint, shard_files
from training.disk.checkpoint_file import read_checkpoint, read_state
from training.disk.whole_checkpoint import load
from training.metrics.sinks import RunFacts
from training.metrics.wandb_facts import checkpoint_artifact

KEYS = dict(gradient_accumulation_steps=4, always_save_checkpoint=True, eval_batch_size=1)
ROWS = dict(n_embd=18, eval_interval=2)  # 4 ranks have 5, 5, 5 and 3 of 18 rows


def folders(out_dir: Path) -> list[str]:
    return sorted(path.name for path in (out_dir / "ckpt_shards").iterdir())


def same(one: Path, other: Path, within: float = 2e-5) -> None:
    ours, theirs = open_whole(one), open_whole(other)
    torch.testing.assert_close(ours.weights, theirs.weights, rtol=1e-3, atol=within)
    torch.testing.assert_close(ours.optimizer, theirs.optimizer, rtol=1e-3, atol=within)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_four_ranks_two_four_and_one_go_on_as_one_that_was_never_interrupted(
    together, run, losses, tmp_path
):
    keys = KEYS | ROWS
    alone = run(out_dir=str(tmp_path / "alone"), max_iters=8, **keys)
    resumed = keys | {"init_from": "resume"}
    out_dir, output = together(4, parallel="fsdp", max_iters=2, **keys)
    assert f"{out_dir}/ckpt.pt: iteration 2, shards of 4 ranks in {out_dir}/ckpt_shards/2" in output
    _, output = together(2, parallel="fsdp", max_iters=4, **resumed)
    assert "ranks 4 -> 2" in output and folders(out_dir) == ["4"]
    together(4, parallel="hsdp", shard_ranks=2, max_iters=6, **resumed)
    run(out_dir=str(out_dir), max_iters=8, **resumed)
    assert not (out_dir / "ckpt_shards").exists()  # one rank has all in one file
    ours, theirs = losses(out_dir), losses(alone)
    assert ours.keys() == theirs.keys() == set(range(9))
    for iteration, row in ours.items():
        assert row == pytest.approx(theirs[iteration], abs=1e-5), iteration
    same(out_dir, alone)


@pytest.mark.slow
def test_what_one_rank_alone_finds_damaged_ends_all_of_them_in_one_line(
    together, command, tmp_path
):
    out_dir, _ = together(2, parallel="fsdp", max_iters=2, **(KEYS | {"eval_interval": 2}))
    flip(out_dir / "ckpt_shards/2/__1_0.distcp")
    words = command(parallel="fsdp", max_iters=4, init_from="resume", **KEYS)
    codes, output = ended_ranks(2, words)
    assert output.count(f"train.py: error: {out_dir}/ckpt_shards/2/__1_0.distcp: damaged") == 1
    assert 2 in codes and "CheckpointException" not in output


@contextmanager
def process_group():
    """Opens a group of this process alone: what it says to all it hears itself."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def save(out_dir: Path, iteration: int, is_best: bool = True, keeps_best: bool = False) -> None:
    """All that it holds has the number of the iteration in every place."""
    mesh = init_device_mesh("cpu", (1,))
    config, alphabet = tiny(), CharTokenizer.with_order("".join(map(chr, range(32, 97))))
    model = tiny_model(config)
    found = {
        p: distribute_tensor(p.data.fill_(iteration), mesh, [Shard(0)]) for p in model.parameters()
    }
    named = model.named_parameters(remove_duplicate=False)
    state, tensors = shard_files.split_shared(
        {
            "model": {name: found[p] for name, p in named},
            "optimizer": {
                n: {"exp_avg": p, "step": torch.ones(())} for n, p in enumerate(found.values())
            },
            "iter_num": iteration,
            "best_iteration": iteration,
            "config": asdict(config),
            "tokenizer": alphabet.to_record(),
        }
    )
    put = partial(checkpoint.replace, out_dir / "ckpt.pt", is_best=is_best, keeps_best=keeps_best)
    shard_files.write(out_dir, tensors, dist.group.WORLD, put, state)


def held(path: Path) -> int:
    """The iteration of a checkpoint, all of whose weights are there."""
    saved = load(path)
    assert all(weight.eq(saved.iteration).all() for weight in saved.weights.values())
    return saved.iteration


def test_the_best_shards_outlive_worse_ones_and_others_go(tmp_path):
    (tmp_path / "ckpt_shards" / "mine").mkdir(parents=True)
    (tmp_path / "ckpt_shards" / "3.tmp").mkdir()
    with process_group():
        save(tmp_path, 4)
        save(tmp_path, 8, is_best=False, keeps_best=True)
        save(tmp_path, 12, is_best=False)
        assert (held(tmp_path / "ckpt.pt"), held(tmp_path / "ckpt_best.pt")) == (12, 4)
        assert folders(tmp_path) == ["12", "4", "mine"]
        save(tmp_path, 12)  # once more, as after a resume: never into the folder in use
        assert folders(tmp_path) == ["12-2", "mine"] and held(tmp_path / "ckpt.pt") == 12
    embedding, head = (
        read_checkpoint(tmp_path / "ckpt.pt").shards.weights[name]
        for name in ("transformer.wte.weight", "lm_head.weight")
    )
    assert embedding == head  # in the file once
    facts = RunFacts("", {"dataset": "a"}, {}, 0)
    sent = checkpoint_artifact(tmp_path, facts, {}).manifest.entries
    assert set(sent) == {"ckpt.pt", "ckpt_shards/12-2/__0_0.distcp"}
    assert not list(tmp_path.rglob("*.metadata"))


def killed_at(out_dir: Path, place: str, call: int) -> None:
    """Saves a checkpoint, in a child, which is killed where the next one calls the function so many
    times."""
    left = iter(range(call - 1))

    def kill(*words, function, **named):
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*words, **named)

    with process_group():
        save(out_dir, 1)
        module, _, name = place.rpartition(".")
        function = getattr(sys.modules[module], name)
        with patch(place, partial(kill, function=function)):
            save(out_dir, 2)


KILLED_AT = (
    "import sys; from tests.training.test_shard_files import *; _, out_dir, place, call = sys.argv;"
    "killed_at(Path(out_dir), place, int(call))"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place, call, expected",
    [
        ("torch.save", 9, 1),  # in the midst of the shards
        ("training.disk.shard_files.publish", 1, 1),
        ("training.disk.checkpoint.write", 1, 1),  # they are whole, and ckpt.pt names the others
        ("training.disk.checkpoint.remove_unnamed", 1, 2),  # the older ones are still there
    ],
)
def test_killed_at_any_moment_the_last_whole_one_is_there(tmp_path, place, call, expected):
    child = Forked(["-c", KILLED_AT, str(tmp_path), place, str(call)], dict(os.environ))
    assert child.wait(60) == -signal.SIGKILL
    assert held(tmp_path / "ckpt.pt") == expected and len(folders(tmp_path)) == 2
    with process_group():
        save(tmp_path, 3)
    assert held(tmp_path / "ckpt.pt") == 3 and folders(tmp_path) == ["3"]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    with process_group():
        save(folder, 4)
    return folder


def in_place_of_embedding(out_dir: Path, value: object) -> None:
    """Writes the value at the end of the shards, and has the index say so."""
    stream = io.BytesIO()
    torch.save(value, stream)
    with open(out_dir / "ckpt_shards/4/__0_0.distcp", "ab") as file:
        at = file.tell()
        file.write(stream.getvalue())
    state = read_state(out_dir / "ckpt.pt")
    record = state["shards"]["tensors"]["model.transformer.wte.weight"]
    record["shards"][0][3:] = [at, stream.tell()]
    checkpoint.write(out_dir / "ckpt.pt", state)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def reindex(out_dir: Path, key: str, value: object) -> None:
    state = read_state(out_dir / "ckpt.pt")
    if key == "folder":
        state["shards"][key] = value
    else:
        state["shards"]["tensors"]["model.transformer.wte.weight"][key] = value
    checkpoint.write(out_dir / "ckpt.pt", state)


DAMAGE = {
    "missing": (lambda out, file: file.unlink(), "__0_0.distcp: cannot be read (No such file"),
    "cut": (lambda out, file: os.truncate(file, file.stat().st_size // 2), "__0_0.distcp: damaged"),
    "a bit": (
        lambda out, file: flip(file),
        "__0_0.distcp: damaged or not a checkpoint (wrong check",
    ),
    "code": (
        lambda out, _: in_place_of_embedding(out, Planted(f"touch {out}/canary")),
        "(it names posix.system, which is code); no code in it was run",
    ),
    "another shape": (
        lambda out, _: in_place_of_embedding(out, torch.ones(3)),
        "does not contain the data",
    ),
    "another type": (
        lambda out, _: in_place_of_embedding(out, torch.ones(65, 32).double()),
        "does not contain the data",
    ),
    "nan": (
        lambda out, _: in_place_of_embedding(out, torch.full((65, 32), torch.nan)),
        "numbers that are not finite",
    ),
    "rows that lack": (
        lambda out, _: reindex(out, "shards", [[0, 60, "__0_0.distcp", 0, 9000]]),
        "model.transformer.wte.weight have 60 of 65 rows",
    ),
    "rows twice": (
        lambda out, _: reindex(out, "shards", 2 * [[0, 65, "__0_0.distcp", 0, 9000]]),
        "do not continue at row 65",
    ),
    "a number": (
        lambda out, _: reindex(out, "shards", [[0, 65, "__0_0.distcp", -1, 9000]]),
        "an invalid number",
    ),
    "a file above": (
        lambda out, _: reindex(out, "shards", [[0, 65, "../../x", 0, 9000]]),
        "an invalid file",
    ),
    "a folder above": (lambda out, _: reindex(out, "folder", ".."), "an invalid folder"),
    "another model": (lambda out, _: reindex(out, "shape", [65, 31]), "do not fit its config"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_shards_are_one_line_and_run_nothing(good, tmp_path, kind):
    out_dir = tmp_path / "out"
    shutil.copytree(good, out_dir)
    assert held(out_dir / "ckpt.pt") == 4
    damage, message = DAMAGE[kind]
    damage(out_dir, out_dir / "ckpt_shards/4/__0_0.distcp")
    with pytest.raises(ValueError) as refusal:
        load(out_dir / "ckpt.pt")
    said = str(refusal.value)
    assert message in said and said.startswith(str(out_dir)) and "\n" not in said
    assert not (out_dir / "canary").exists()


# rank 1 has no room for its first shards; all but the last are written when rows have come
FULL = """
import os, resource, signal, threading, time
import train
from configs import command_line
from training.disk import checkpoint, shard_files
from training.metrics import record

checkpoint.beside_training = lambda run: run.progress.iteration < run.config.max_iters
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
write, trained, rows = shard_files.ShardWriter.write_data, record.Record.log_training, []

def write_data(self, plan, planner):
    iteration, end = int(self.path.stem), time.monotonic() + 60
    while iteration < 12 and max(rows) <= iteration:
        assert time.monotonic() < end, "the loop waited"
        time.sleep(0.01)
    full = (iteration, os.environ["RANK"]) == (4, "1")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096 if full else hard, hard))
    return write(self, plan, planner)

def row(self, iteration, *rest):
    trained(self, iteration, *rest)
    rows.append(iteration)

shard_files.ShardWriter.write_data, record.Record.log_training = write_data, row
command_line.run(train.train)
"""


@pytest.mark.slow
def test_a_disk_that_is_full_for_one_rank_costs_one_checkpoint_and_no_wait(
    together, run, losses, tmp_path
):
    script = tmp_path / "full.py"
    script.write_text(FULL)
    _, output = together(2, script, parallel="fsdp", max_iters=12, **KEYS)
    refused = (
        "iteration 4 not saved (rank 1: [Errno 27] File too large); there is no checkpoint yet"
    )
    assert output.count(refused) == output.count("not saved") == 1, output
    assert "saving works again, after 1 failed attempts" in output
    assert (
        folders(tmp_path / "out") == ["12"]
        and read_checkpoint(tmp_path / "out/ckpt.pt").iteration == 12
    )
    alone = run(out_dir=str(tmp_path / "alone"), max_iters=12, **KEYS)
    same(tmp_path / "out", alone, within=1e-3)
