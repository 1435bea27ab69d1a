"""Two ranks under torchrun, on the CPU with gloo: the same training as one process."""

import json
import os
import re
import signal
import socket
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from configs.schema import Config
from data.dataset import Dataset
from data.tokenizers import CharTokenizer
from tests.helpers.processes import read_until
from tests.helpers.ranks import TORCHRUN, ended_ranks, output_of_ranks
from tests.helpers.slow_rank import describe_waits, train_with_a_slow_rank
from training.checks import check_same_keys, check_same_text
from training.ranks import distributed
from training.ranks.distributed import Ranks, join_run

SLOW_MS, ORDER = 40.0, ("slowest", "fastest")
TWO = ["--standalone", "--nproc_per_node=2"]
OTHERS = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29871"}


@pytest.mark.parametrize(
    "environ, message",
    [
        ({"WORLD_SIZE": "abc"}, "^WORLD_SIZE=abc: not a number; torchrun sets"),
        ({"WORLD_SIZE": "0"}, "^WORLD_SIZE=0: a run needs at least one rank; torchrun sets"),
        ({"LOCAL_RANK": "-1"}, "^LOCAL_RANK=-1: not a number"),
        ({"WORLD_SIZE": "2"}, "^WORLD_SIZE=2, but RANK is not set; start training with torchrun"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "^WORLD_SIZE=2, but MASTER_ADDR is not set"),
        ({"LOCAL_WORLD_SIZE": "abc"}, "^LOCAL_WORLD_SIZE=abc: not a number"),
        (
            {**OTHERS, "LOCAL_WORLD_SIZE": "0"},
            "^LOCAL_WORLD_SIZE=0: a host must have 1 to 2 of the 2 ranks",
        ),
        (
            {**OTHERS, "LOCAL_WORLD_SIZE": "3"},
            "^LOCAL_WORLD_SIZE=3: a host must have 1 to 2 of the 2 ranks",
        ),
        ({**OTHERS, "RANK": "a"}, "^RANK=a: not a number"),
        ({**OTHERS, "RANK": "2"}, "^RANK=2: must be from 0 to one less than WORLD_SIZE=2"),
        ({**OTHERS, "MASTER_PORT": "x"}, "^MASTER_PORT=x: not a number"),
        ({**OTHERS, "MASTER_PORT": "0"}, "^MASTER_PORT=0: a port must be from 1 to 65535"),
        ({**OTHERS, "MASTER_PORT": "80000"}, "^MASTER_PORT=80000: a port must be"),
    ],
)
def test_an_environment_that_torchrun_did_not_make(monkeypatch, environ, message):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message), join_run("cpu"):
        pass


def test_a_port_that_is_taken(monkeypatch):
    with socket.create_server(("localhost", 0)) as taken:
        port = str(taken.getsockname()[1])
        for name, value in (OTHERS | {"RANK": "0", "MASTER_PORT": port}).items():
            monkeypatch.setenv(name, value)
        said = f"^MASTER_PORT={port} of MASTER_ADDR=localhost: in use by another program"
        with pytest.raises(ValueError, match=said), join_run("cpu"):
            pass


def test_a_wait_for_the_others_is_explained(monkeypatch, caplog):
    """A host that is unknown now may become known: no error."""
    for name, value in (OTHERS | {"MASTER_ADDR": "no.such.invalid"}).items():
        monkeypatch.setenv(name, value)

    def meet(*_):
        time.sleep(0.2)
        raise dist.DistNetworkError("timed out after 1800 s\nException raised from C++ ...")

    monkeypatch.setattr(distributed, "rendezvous", meet)
    monkeypatch.setattr(distributed, "PATIENCE_S", 0.05)
    with (
        pytest.raises(ValueError, match=r"no\.such\.invalid: timed out after 1800 s$"),
        join_run("cpu"),
    ):
        pass
    unknown, waiting = caplog.messages
    assert unknown.startswith("MASTER_ADDR=no.such.invalid: this host name is not known")
    assert waiting.startswith("rank 1 of 2: has waited 0 s for all ranks to connect at no.such.inv")


@pytest.mark.slow
@pytest.mark.parametrize("number, word", [(signal.SIGINT, "RANK=1"), (signal.SIGTERM, "RANK=0")])
def test_a_rank_that_waits_for_the_others_can_be_stopped(command, start, tmp_path, number, word):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    code = (
        "import training.ranks.distributed as d, runpy, sys; meet = d.rendezvous\n"
        "d.rendezvous = lambda *words: (print('waits'), meet(*words))[1]\n"
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    name, _, rank = word.partition("=")
    environ = OTHERS | {name: rank, "MASTER_PORT": port}
    process = start(["-c", code, *command(gradient_accumulation_steps=2)], **environ)
    read_until(process, "waits")
    time.sleep(0.5)
    process.send_signal(number)
    assert process.wait(timeout=10) == -number


@pytest.mark.slow
def test_two_ranks_train_as_one_process(run, command, start, assert_trained_alike, tmp_path):
    keys = dict(gradient_accumulation_steps=2, max_iters=12, always_save_checkpoint=True)
    alone = run(out_dir=str(tmp_path / "alone"), **keys)
    process = start(["-m", "torch.distributed.run", *TWO, *command(**keys)])
    output = process.communicate(timeout=100)[0]
    assert process.returncode == 0, output
    out_dir = tmp_path / "out"
    assert_trained_alike(out_dir, alone, 13)
    records = [json.loads(line) for line in (out_dir / "metrics.jsonl").open()]
    iterations = [row["iter"] for row in records if "train/loss" in row]
    assert iterations == list(range(12))  # one rank writes
    assert [row["run"]["ranks"] for row in records if "run" in row] == [2]
    assert output.count("iter 3:") == output.count("step 4:") == 1  # and one speaks
    state, one = (torch.load(d / "ckpt.pt", weights_only=True) for d in (out_dir, alone))
    torch.testing.assert_close(state["model"], one["model"], rtol=1e-4, atol=1e-5)
    first, second = state["random_states"]["cpu"]
    assert not torch.equal(first, second)  # dropout of its own on each rank


@pytest.mark.slow
def test_two_ranks_with_muon_train_as_one_process(run, together, losses, tmp_path):
    """Muon's products round to bfloat16, so that the last bits of a gradient are seen."""
    keys = dict(optimizer="muon", positions="rotary", gradient_accumulation_steps=2)
    alone = run(out_dir=str(tmp_path / "alone"), **keys)
    out_dir, _ = together(2, **keys)
    found = losses(out_dir)
    for iteration, row in losses(alone).items():
        assert found[iteration] == pytest.approx(row, abs=0.03), iteration


@pytest.mark.slow
def test_micro_batches_that_ranks_cannot_share_are_refused(command, tmp_path):
    codes, output = ended_ranks(2, command(gradient_accumulation_steps=3))
    assert any(codes)
    refusal = "error: gradient_accumulation_steps=3: not divisible by the 2 ranks"
    assert output.count("train.py: error: ") == output.count(refusal) == 1, output
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_mistake_in_the_command_line_is_said_once(command, start):
    """The first rank says it; what a rank alone has met it says itself, a little later."""
    process = start([*TORCHRUN, *TWO, *command(n_layers=2)])
    output = process.communicate(timeout=100)[0]
    assert process.returncode != 0
    assert output.count("train.py: error: n_layers: no such key") == 1, output


@pytest.mark.slow
def test_the_jobs_of_a_sweep_follow_one_another(command, rows, tmp_path):
    keys = command(gradient_accumulation_steps=2, max_iters=4)
    output_of_ranks(2, [*keys, "-m", "seed=1,2,3"])
    for seed in (1, 2, 3):
        assert 3 in rows(tmp_path / "out" / f"seed={seed}")


@pytest.mark.slow
def test_two_ranks_ask_for_one_lock(command, start, tmp_path):
    keys = dict(gradient_accumulation_steps=2, max_iters=100_000)
    first = start(command(**keys))
    read_until(first, "iter 5:")
    owner = (tmp_path / "out" / "run.lock").read_text().strip()
    os.kill(first.pid, signal.SIGSTOP)  # it holds the lock all the same, and takes no core
    second = start([*TORCHRUN, *TWO, *command(**keys)])
    output = second.communicate(timeout=100)[0]
    assert second.returncode != 0
    assert output.count("train.py: error: ") == 1
    assert output.count(f"/out: in use by {owner}; ") == 2  # once more in torchrun's account
    assert f"process {first.pid} " in owner


@pytest.mark.slow
def test_a_mistake_that_only_the_first_rank_meets_is_said_once(command, tmp_path):
    missing = str(tmp_path / "missing.txt")
    keys = dict(gradient_accumulation_steps=2, data_source=missing)
    codes, output = ended_ranks(2, command(**keys))
    assert any(codes)
    assert output.count(f"train.py: error: data_source={missing}: No such file") == 1, output
    assert "[rank1]" not in output  # how PyTorch marks a traceback of that rank


@pytest.mark.parametrize(
    "rank, ranks, code, said",
    [(0, 1, "why", ""), (0, 64, 1, "why\n"), (3, 64, 1, "")],  # Python prints a code that is a text
)
def test_what_all_ranks_know_is_said_by_the_first_at_once(capsys, rank, ranks, code, said):
    ended = Ranks(rank, ranks, torch.device("cpu")).exit_with("why")
    assert ended.code == code and capsys.readouterr().err == said


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_said_once(command):
    keys = dict(gradient_accumulation_steps=2, learning_rate=1e30, max_iters=50)
    codes, output = ended_ranks(2, command(**keys))
    assert any(codes)
    assert output.count("train.py: training loss is nan at iteration") == 1, output


@pytest.mark.slow
def test_sigterm_to_torchrun_ends_with_a_checkpoint(command, start, tmp_path):
    process = start([*TORCHRUN, *TWO, *command(gradient_accumulation_steps=2, max_iters=100_000)])
    read_until(process, "iter 5:")
    lock = tmp_path / "out" / "run.lock"
    assert lock.exists()
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    assert process.returncode != 0  # torchrun's own, by its version
    assert not lock.exists()
    assert "SIGTERM: finishing this iteration" in output
    state = torch.load(tmp_path / "out" / "ckpt.pt", weights_only=True)
    assert state["iter_num"] > 5
    assert len(state["random_states"]["cpu"]) == 2
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["iter"] == state["iter_num"] - 1


@pytest.mark.slow
def test_a_slow_rank_is_named_with_what_it_costs(together, rows, tmp_path):
    """Half of the times the others wait where a row is logged: also that is counted."""
    keys = dict(gradient_accumulation_steps=2, max_iters=80, eval_interval=40, log_interval=2)
    script = train_with_a_slow_rank(tmp_path, rank=1, ms=SLOW_MS, said_after_s=1.0)
    _, output = together(2, script, **keys)
    waited = [row for row in rows(tmp_path / "out").values() if "time/wait_ms" in row]
    figures = describe_waits(waited)
    assert len(waited) == 39, "each row but the first, whose iteration is behind an evaluation"
    assert [row["time/slowest_rank"] for row in waited].count(1) >= 37, figures
    for name in ("time/straggler_ms", "time/wait_ms/rank0"):
        cost_ms = np.median([row[name] for row in waited])
        assert 0.8 < cost_ms / SLOW_MS < 1.5, f"{name} of {SLOW_MS} ms: {figures}"
    work_ms = [np.median([row[f"time/{which}_rank_ms"] for row in waited]) for which in ORDER]
    assert 0.8 < (work_ms[0] - work_ms[1]) / SLOW_MS < 1.5, figures
    assert len(re.findall("warning: the others wait .* ms step for rank 1: ", output)) == 1
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["time/slowest_rank"] == 1
    # on a busy machine the start takes longer than these few steps, and is the verdict
    assert summary["verdict/cause"] in ("rank", "start_up"), summary["verdict"]


def told_of_ranks(monkeypatch, *changes):
    """Ranks, of which each has the first's value but for its changes."""

    def gather(values, mine, group):
        for number, change in enumerate(changes):
            values[number] = {**mine, **change} if isinstance(mine, dict) else change or mine

    monkeypatch.setattr(dist, "all_gather_object", gather)
    return distributed.Ranks(1, len(changes), torch.device("cpu"))


def test_ranks_that_were_started_with_other_keys_are_refused(monkeypatch):
    """A key mistyped for ranks on hosts of their own is another run: it hung, or trained something
    else."""
    config = Config()
    check_same_keys(config, told_of_ranks(monkeypatch, {}, {}))
    ranks = told_of_ranks(monkeypatch, {}, {}, {"seed": "7", "profile.kind": "torch"})
    said = (
        r"^seed=7, profile\.kind=torch: this is rank 2, but rank 0 has seed=1337, "
        r"profile\.kind=none; start all ranks with the same keys$"
    )
    with pytest.raises(ValueError, match=said):
        check_same_keys(config, ranks)


def test_a_place_of_ones_own_is_no_other_key(monkeypatch):
    sent = []
    monkeypatch.setattr(dist, "all_gather_object", lambda values, mine, group: sent.append(mine))
    with pytest.raises(TypeError):  # there are no values
        check_same_keys(Config(out_dir="mine"), distributed.Ranks(0, 2, torch.device("cpu")))
    assert "max_iters" in sent[0] and not {"out_dir", "dataset", "data_source"} & sent[0].keys()


def test_ranks_that_have_other_texts_are_refused(monkeypatch, tmp_path):
    dataset = Dataset("a text", "1f", CharTokenizer("ab"), tmp_path, {})
    check_same_text(Config(), dataset, told_of_ranks(monkeypatch, None, None))
    with pytest.raises(
        ValueError, match="^dataset=shakespeare_char: rank 1 has a different text in "
    ):
        check_same_text(Config(), dataset, told_of_ranks(monkeypatch, None, "2e"))
