"""Runs started by Slurm, and runs that torchrun restarts after a rank or a host was lost."""

import os
import signal
import socket
import time

import pytest
import torch

from cli.slurm import PORTS, first_host, torchrun_variables
from tests.helpers.processes import read_until
from tests.helpers.ranks import TORCHRUN
from tests.paths import PROJECT
from training.checks import check_job

TASK = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[03,07]",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}


def test_a_task_of_slurm_is_a_rank():
    assert torchrun_variables(TASK) == {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "gpu03",
        "MASTER_PORT": str(PORTS[4711]),
    }
    chosen = torchrun_variables(TASK | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"})
    assert (chosen["MASTER_ADDR"], chosen["MASTER_PORT"]) == ("10.0.0.1", "1234")
    uneven = TASK | {"SLURM_STEP_TASKS_PER_NODE": "5,3"}
    assert "LOCAL_WORLD_SIZE" not in torchrun_variables(uneven)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"},  # a batch script
        TASK | {"SLURM_STEP_NUM_TASKS": "1"},
        TASK | {"RANK": "3", "WORLD_SIZE": "16"},  # torchrun in a task of each host
    ],
)
def test_what_is_no_rank_of_slurm_is_left_alone(environ):
    assert torchrun_variables(environ) == {}


def test_a_step_that_does_not_say_who_is_who_is_refused():
    with pytest.raises(ValueError, match="^SLURM_STEP_NUM_TASKS=8, but SLURM_LOCALID is not set;"):
        torchrun_variables({name: TASK[name] for name in TASK if name != "SLURM_LOCALID"})


@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"])
def test_what_is_no_number_is_named_as_slurm_names_it(name):
    with pytest.raises(ValueError, match=f"^{name}=abc: not a number; srun sets"):
        torchrun_variables(TASK | {name: "abc"})


@pytest.mark.parametrize(
    "nodes, first",
    [
        ("localhost", "localhost"),
        ("gpu1,gpu2", "gpu1"),
        ("gpu[003-005,9],cpu1", "gpu003"),
        ("rack[1-2]-ib,x", "rack1-ib"),
        ("gpu[7]", "gpu7"),
    ],
)
def test_the_first_host_of_a_list(nodes, first):
    assert first_host(nodes) == first


@pytest.mark.slow
def test_tasks_of_slurm_train_together(run, command, start, assert_trained_alike, tmp_path):
    keys = dict(gradient_accumulation_steps=2, max_iters=8)
    alone = run(out_dir=str(tmp_path / "alone"), **keys)
    step = TASK | {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost"}
    step |= {"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_JOB_ID": str(os.getpid())}
    whos = [{"SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)} for task in range(2)]
    tasks = [start(command(**keys), **(step | who)) for who in whos]
    outputs = [task.communicate(timeout=100)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], outputs
    assert_trained_alike(tmp_path / "out", alone, 9)
    assert "iter 3:" in outputs[0] and "iter 3:" not in outputs[1], "the first speaks for all"


# nobody asks what the ranks did last
UNASKED = """
import os, signal
import train
from configs import command_line
from training.ranks import flight_recorder

flight_recorder.ANSWER_S = 0.5
{change}
command_line.run(train.train)
"""
# the rank is killed behind an iteration, in the first life of the run
KILLED = """
def accumulate(step, batches, iteration, spans, accumulate=train.accumulate):
    life = os.environ["TORCHELASTIC_RESTART_COUNT"]
    if (iteration, os.environ["RANK"], life) == (6, "1", "0"):
        os.kill(os.getpid(), signal.SIGKILL)
    accumulate(step, batches, iteration, spans)

train.accumulate = accumulate
"""
# a rank writes its process id where its agent was given a place, and leaves the cores to others: it
# trains until a lost agent is known, which takes seconds
NOTED = """
import time

def accumulate(*args, accumulate=train.accumulate):
    time.sleep(0.01)
    accumulate(*args)

train.accumulate = accumulate
if place := os.environ.get("NOTE"):
    with open(place, "w") as file:
        file.write(str(os.getpid()))
"""
KEYS = dict(gradient_accumulation_steps=2, max_iters=12, eval_interval=4, go_on=True)


@pytest.mark.slow
def test_a_killed_rank_is_restarted_from_the_last_checkpoint(
    run, command, start, assert_trained_alike, tmp_path
):
    always = dict(always_save_checkpoint=True)
    alone = run(out_dir=str(tmp_path / "alone"), **KEYS, **always)
    script = tmp_path / "killed.py"
    script.write_text(UNASKED.format(change=KILLED))
    torchrun = [*TORCHRUN, "--standalone", "--nproc_per_node=2"]
    words = [*torchrun, "--max-restarts=1", str(script), *command(**KEYS, **always)[1:]]
    process = start(words, PYTHONPATH=str(PROJECT))
    output = process.communicate(timeout=170)[0]
    assert process.returncode == 0, output
    assert f"resumed {tmp_path}/out/ckpt.pt at iteration 4" in output
    assert_trained_alike(tmp_path / "out", alone, 13)
    assert not list((tmp_path / "out").glob("previous-*"))


@pytest.mark.slow
def test_when_a_host_is_lost_the_other_goes_on(command, start, tmp_path):
    """Two agents of one rank each; the second is killed with its rank."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    keys = KEYS | {"max_iters": 100_000, "eval_interval": 50, "log_interval": 50}
    agent = [*TORCHRUN, "--nnodes=1:2", "--nproc_per_node=1"]
    agent += ["--max-restarts=3", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}"]
    # a lost agent is known after three intervals
    agent += ["--rdzv-id=two", "--rdzv-conf=last_call_timeout=1,keep_alive_interval=2"]
    script = tmp_path / "unasked.py"
    script.write_text(UNASKED.format(change=NOTED))
    words = [*agent, str(script), *command(**keys)[1:]]
    environ = {"PYTHONPATH": str(PROJECT), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    first = start(words, **environ)
    while socket.socket().connect_ex(("localhost", port)):
        time.sleep(0.2)  # it has the rendezvous, which has to stay
    lost = tmp_path / "lost"
    second = start(words, **environ, NOTE=str(lost))
    checkpoint = tmp_path / "out" / "ckpt.pt"

    def is_of_both() -> bool:
        if not checkpoint.exists():
            return False
        saved = torch.load(checkpoint, weights_only=True)
        return len(saved["random_states"]["cpu"]) == 2 and saved["iter_num"] > 50

    wait_for(is_of_both)
    for process in (second.pid, int(lost.read_text())):
        os.kill(process, signal.SIGKILL)
    read_until(first, "ranks 2 -> 1")
    read_until(first, "iter ")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert torch.load(checkpoint, weights_only=True)["iter_num"] > 50
    assert not list((tmp_path / "out").glob("previous-*"))


def wait_for(there, limit_s: float = 120) -> None:
    end_s = time.monotonic() + limit_s
    while not there():
        assert time.monotonic() < end_s
        time.sleep(0.2)


def test_a_job_that_goes_on_is_not_refused_for_its_own_run(config, run):
    out_dir = run(max_iters=4, go_on=True, keep_previous="refuse", always_save_checkpoint=True)
    check_job(config(out_dir=str(out_dir), go_on=True, keep_previous="refuse"))
    with pytest.raises(ValueError, match="keep_previous=refuse"):
        check_job(config(out_dir=str(out_dir), keep_previous="refuse"))
