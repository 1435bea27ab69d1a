"""Handles SIGINT, SIGTERM, SIGHUP: finish the iteration, save, leave; a second leaves at once."""

import _thread
import logging
import signal
import time
from contextlib import ExitStack, suppress
from types import FrameType
from typing import NamedTuple

from cli.interrupts import handle_signals
from cli.pipes import drop_unread
from cli.process import leave
from training.ranks.distributed import Ranks

log = logging.getLogger(__name__)

ECHO_S = 0.5  # torchrun passes on a Ctrl-C that the terminal has sent to every process already


class StopOrSave(NamedTuple):
    """Answer to what happens before the next iteration, the same on all ranks."""

    stop: bool
    save: bool  # also true before a stop


class Interrupt:
    """Context manager that turns a signal into an answer of `agree`, asked once an iteration.

    A signal that is ignored already, such as SIGHUP under nohup, stays so. If one comes too late
    for the loop to see it, leaving the block raises SystemExit.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.received_s = 0.0

    def __enter__(self) -> "Interrupt":
        self.until_left = ExitStack()
        self.until_left.enter_context(handle_signals(self.receive))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.until_left.close()
        if self.signal and kind is None:  # it came too late for the loop to see it
            raise SystemExit(self.exit_code)

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            # A closing terminal may send SIGHUP more than once, and torchrun repeats a Ctrl-C.
            # Neither means that the user has lost patience.
            if number != signal.SIGHUP and time.monotonic() - self.received_s > ECHO_S:
                leave(number)
            return
        self.signal, self.received_s = signal.Signals(number), time.monotonic()
        if number == signal.SIGHUP:
            drop_unread()  # a line to the closed terminal would end the run before it has saved
        # A thread logs, because it can wait for its turn: the signal may have come during a write
        # to the same stream, which refuses a second write from within. It is no threading.Thread,
        # whose start takes a lock that the interrupted code may hold.
        _thread.start_new_thread(say, (self.signal,))

    def agree(self, ranks: Ranks, logged: bool, save_due: bool = False) -> StopOrSave:
        """Agrees with the other ranks whether to stop, and whether to save, before the next step.

        `save_due` says whether this rank's save timer has run out. Several ranks ask each other
        only after a `logged` iteration, because their hosts wait for each other to do so.
        """
        if ranks.world_size > 1 and not logged:
            return StopOrSave(stop=False, save=False)
        stop, save = ranks.any_of_each([self.signal is not None, save_due])
        return StopOrSave(stop, stop or save)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as in shells; SIGTERM's if only another rank got a signal."""
        return 128 + (self.signal or signal.SIGTERM)


def say(received: signal.Signals) -> None:
    again = "" if received == signal.SIGHUP else "; interrupt again to exit now"
    with suppress(BrokenPipeError):  # nobody reads any more: the run's next line ends it
        log.warning("%s: finishing this iteration, then saving%s", received.name, again)
