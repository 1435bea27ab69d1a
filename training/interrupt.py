"""SIGINT, SIGTERM and SIGHUP: finish the iteration, save, leave; a second one leaves at once."""

import _thread
import logging
import signal
import time
from contextlib import ExitStack, suppress
from types import FrameType
from typing import NamedTuple

from cli.interrupts import handle_signals
from cli.pipes import drop_unread
from cli.start_up import leave
from training.distributed import Ranks

log = logging.getLogger(__name__)

ECHO_S = 0.5  # torchrun passes a Ctrl-C on that the terminal has sent to every process already


class Asked(NamedTuple):
    """What is to be done before the next iteration, alike on all ranks."""

    stop: bool
    save: bool  # before a stop, too


class Interrupt:
    """`with Interrupt() as interrupt:` then ask `interrupt.agreed` once an iteration.

    A signal that is ignored, as SIGHUP under nohup, stays so.
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
            # a terminal that closes may tell of it more than once, and nobody has lost patience
            if number != signal.SIGHUP and time.monotonic() - self.received_s > ECHO_S:
                leave(number)
            return
        self.signal, self.received_s = signal.Signals(number), time.monotonic()
        if number == signal.SIGHUP:
            drop_unread()  # a line to the closed terminal would end the run before it has saved
        # By a thread, which waits for its turn: the signal may have come amid a write of the
        # same stream, and that stream refuses a second one from within. Not by threading.Thread:
        # its start takes a lock that the interrupted code may hold.
        _thread.start_new_thread(say, (self.signal,))

    def agreed(self, ranks: Ranks, logged: bool, save_due: bool = False) -> Asked:
        """Whether to stop now, and whether to save, the same answer on every rank.

        `save_due`: by this rank's clock. Several ranks ask each other only behind a logged
        iteration: their hosts wait for it.
        """
        if ranks.world_size > 1 and not logged:
            return Asked(stop=False, save=False)
        stop, save = ranks.any_of_each([self.signal is not None, save_due])
        return Asked(stop, stop or save)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells have it; SIGTERM's when another rank got it."""
        return 128 + (self.signal or signal.SIGTERM)


def say(received: signal.Signals) -> None:
    again = "" if received == signal.SIGHUP else "; once more to leave now"
    with suppress(BrokenPipeError):  # nobody reads any more: the run's next line ends it
        log.warning("%s: finishing this iteration, then saving%s", received.name, again)
