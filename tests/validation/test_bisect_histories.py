"""End of `validation bisect_histories` by a failure or Ctrl-C: at once, with its processes."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from validation import bisect_histories
from validation.bisect_histories import Children, HistoriesConfig, main

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.parametrize("stop", ["a failure", "Ctrl-C"])
def test_what_runs_is_ended_and_nothing_more_starts(tmp_path, monkeypatch, stop):
    started: list[str] = []

    def judged(config, folder, history, has_one, lane, machine, children):
        started.append(history)
        if len(started) == 1 and stop == "a failure":
            raise ValueError(f"{history} failed")
        if stop == "Ctrl-C":
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with open(tmp_path / "log", "wb") as log:
            code = children.run(SLEEPS, tmp_path, dict(os.environ), log)
        raise ValueError(f"{history} ended with {code}")

    monkeypatch.setattr(bisect_histories, "judged", judged)
    begun = time.monotonic()
    with pytest.raises((ValueError, KeyboardInterrupt)) as caught:
        main(HistoriesConfig(planted=3, without=0, out=str(tmp_path / "out")))
    assert time.monotonic() - begun < 30  # the process would sleep for 60
    assert (caught.type is KeyboardInterrupt) == (stop == "Ctrl-C")
    assert len(started) < 3


def test_a_process_after_the_end_is_not_started(tmp_path):
    children = Children()
    with open(tmp_path / "log", "wb") as log, ThreadPoolExecutor(1) as pool:
        running = pool.submit(children.run, SLEEPS, tmp_path, dict(os.environ), log)
        while not children.running:
            time.sleep(0.01)
        children.end()
        assert running.result(timeout=30) == -signal.SIGTERM
        absent = [str(tmp_path / "no-such-program")]
        assert children.run(absent, tmp_path, {}, log) == 128 + signal.SIGTERM
