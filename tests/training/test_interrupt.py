"""Ctrl-C, SIGTERM and SIGHUP: the run ends in good order, and can be resumed."""

import io
import logging
import os
import pty
import signal
import sys
import time

import pytest
import torch

from tests.helpers.processes import read_until
from training.ranks import interrupt as interrupt_module
from training.ranks.distributed import Ranks
from training.ranks.interrupt import Interrupt

RANKS = Ranks(0, 1, torch.device("cpu"))


@pytest.fixture
def wait_for_line(caplog):
    """Waits for a signal's line, which comes from a thread: not from one test into the next."""

    def wait() -> None:
        until = time.monotonic() + 10
        while "interrupt again to exit now" not in caplog.text and time.monotonic() < until:
            time.sleep(0.01)

    return wait


def test_a_signal_is_noted_and_the_handlers_come_back(wait_for_line):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"), Interrupt() as interrupt:
        assert interrupt.agree(RANKS, logged=True) == (False, False)
        assert interrupt.agree(RANKS, logged=True, save_due=True) == (False, True)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.agree(RANKS, logged=False) == (True, True)  # one rank waits for no others
        assert interrupt.exit_code == 143
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    wait_for_line()


class SignalledWrite(io.RawIOBase):
    """A file that is written to when the signal comes: at the first write."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        if not self.lines:
            os.kill(os.getpid(), signal.SIGTERM)
        self.lines.append(bytes(data))
        return len(data)


def test_a_signal_amid_a_line_s_write_is_said_behind_that_line(monkeypatch):
    raw = SignalledWrite()
    handler = logging.StreamHandler(io.TextIOWrapper(io.BufferedWriter(raw)))
    errors = []
    monkeypatch.setattr(handler, "handleError", lambda record: errors.append(sys.exc_info()[1]))
    monkeypatch.setattr(interrupt_module.log, "handlers", [handler])
    with pytest.raises(SystemExit, match="143"), Interrupt():
        interrupt_module.log.warning("iter 13: loss 2.5")
    until = time.monotonic() + 10
    while len(raw.lines) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert errors == []
    assert [line.split(b":")[0] for line in raw.lines] == [b"iter 13", b"SIGTERM"]


def test_an_echo_of_the_signal_is_not_a_second_one(monkeypatch, wait_for_line):
    """torchrun sends its ranks the Ctrl-C that the terminal has sent them already."""
    left = []
    monkeypatch.setattr(interrupt_module, "leave", left.append)
    with pytest.raises(SystemExit, match="130"), Interrupt() as interrupt:
        interrupt.receive(signal.SIGINT, None)
        interrupt.receive(signal.SIGINT, None)
        assert left == []
        interrupt.received_s -= 2 * interrupt_module.ECHO_S
        interrupt.receive(signal.SIGINT, None)
        assert left == [signal.SIGINT]
    wait_for_line()


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, exit_code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted_and_resumed_is_uninterrupted(
    run, command, start, losses, tmp_path, number, exit_code
):
    keys = dict(dropout=0.1, gradient_accumulation_steps=2, eval_interval=10)
    process = start(command(max_iters=100_000, **keys))
    read_until(process, "iter 13:")
    process.send_signal(number)
    output = process.stdout.read()
    assert process.wait(timeout=30) == exit_code, output
    assert f"{number.name}: finishing this iteration, then saving" in output
    assert "Traceback" not in output

    out_dir, straight = tmp_path / "out", tmp_path / "straight"
    done = torch.load(out_dir / "ckpt.pt", weights_only=True)["iter_num"]
    assert done - 1 == max(losses(out_dir))  # iterations count from 0
    keys |= dict(max_iters=done + 7, always_save_checkpoint=True)
    run(init_from="resume", **keys)
    run(out_dir=str(straight), **keys)
    resumed, expected = (
        torch.load(folder / "ckpt.pt", weights_only=True) for folder in (out_dir, straight)
    )
    for key in ("iter_num", "model", "optimizer", "random_states"):
        torch.testing.assert_close(resumed[key], expected[key], rtol=0, atol=0)
    assert losses(out_dir) == losses(straight)


def test_a_signal_that_is_ignored_stays_so():
    """Examples are SIGHUP under nohup, and Ctrl-C of a shell's jobs in the background."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupt.agree(RANKS, logged=True) == (False, False)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_sighup_is_no_hurry(monkeypatch):
    """A shell that ends may send one more, behind that of its terminal."""
    left = []
    monkeypatch.setattr(interrupt_module, "leave", left.append)
    monkeypatch.setattr(interrupt_module, "say", lambda received: None)
    with pytest.raises(SystemExit, match="129"), Interrupt() as interrupt:
        interrupt.receive(signal.SIGHUP, None)
        interrupt.received_s -= 2 * interrupt_module.ECHO_S
        interrupt.receive(signal.SIGHUP, None)
        assert left == []
        interrupt.receive(signal.SIGINT, None)
        assert left == [signal.SIGINT]


@pytest.mark.slow
def test_a_terminal_that_closes_costs_nothing(command, losses, tmp_path):
    """The progress bar has nowhere to go from then on, and the checkpoint is written."""
    words = [sys.executable, *command(max_iters=100_000, eval_interval=100_000, eval_iters=1)]
    pid, terminal = pty.fork()
    if not pid:
        os.execv(words[0], words)
    output = b""
    while b"/100000" not in output or b"loss" not in output:
        output += os.read(terminal, 65536)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    done = torch.load(tmp_path / "out" / "ckpt.pt", weights_only=True)["iter_num"]
    assert done - 1 == max(losses(tmp_path / "out"))


@pytest.mark.slow
def test_the_second_signal_leaves_at_once(command, start, tmp_path):
    # an iteration of several seconds: the first signal would take as long
    process = start(command(gradient_accumulation_steps=40_000, batch_size=1, eval_iters=1))
    read_until(process, "step 0:")
    process.send_signal(signal.SIGINT)
    read_until(process, "interrupt again to exit now")
    time.sleep(interrupt_module.ECHO_S + 0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    start_s = time.monotonic()
    assert process.wait(timeout=30) == 130
    assert time.monotonic() - start_s < 5
    assert not (tmp_path / "out" / "ckpt.pt").exists()
