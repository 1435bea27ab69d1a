"""SIGINT and SIGTERM: finish the iteration, save, leave; the second one leaves at once."""

import _thread
import logging
import signal
import time
from contextlib import suppress
from types import FrameType

from cli.start_up import leave
from training.distributed import Ranks

log = logging.getLogger(__name__)

ECHO_S = 0.5  # torchrun passes a Ctrl-C on that the terminal has sent to every process already


class Interrupt:
    """`with Interrupt() as interrupt:` then ask `interrupt.agreed` once an iteration."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.received_s = 0.0

    def __enter__(self) -> "Interrupt":
        self.previous = {
            number: signal.signal(number, self.receive)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        if self.signal and kind is None:  # it came too late for the loop to see it
            raise SystemExit(self.exit_code)

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if time.monotonic() - self.received_s > ECHO_S:
                leave(number)
            return
        self.signal, self.received_s = signal.Signals(number), time.monotonic()
        # By a thread, which waits for its turn: the signal may have come amid a write of the
        # same stream, and that stream refuses a second one from within. Not by threading.Thread:
        # its start takes a lock that the interrupted code may hold.
        _thread.start_new_thread(say, (self.signal,))

    def agreed(self, ranks: Ranks, logged: bool) -> bool:
        """Whether to stop now, the same answer on every rank.

        Several ranks ask each other only behind a logged iteration: their hosts wait for it.
        """
        if ranks.world_size == 1:
            return self.signal is not None
        return logged and ranks.any(self.signal is not None)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells have it; SIGTERM's when another rank got it."""
        return 128 + (self.signal or signal.SIGTERM)


def say(received: signal.Signals) -> None:
    with suppress(BrokenPipeError):  # nobody reads any more: the run's next line ends it
        log.warning(
            "%s: finishing this iteration, then saving; once more to leave now", received.name
        )
