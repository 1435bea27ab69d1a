"""SIGINT and SIGTERM: finish the iteration, save, leave; the second one leaves at once."""

import logging
import signal
import time
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
        log.warning(
            "%s: finishing this iteration, then saving; once more to leave now", self.signal.name
        )

    def agreed(self, ranks: Ranks, waiting: bool) -> bool:
        """Whether to stop now, the same answer on every rank.

        Several ranks ask each other only where they wait for the GPU anyway (`waiting`).
        """
        if ranks.world_size == 1:
            return self.signal is not None
        return waiting and ranks.any(self.signal is not None)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells have it; SIGTERM's when another rank got it."""
        return 128 + (self.signal or signal.SIGTERM)
