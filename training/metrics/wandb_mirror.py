"""Mirrors a run's metrics in Weights & Biases; the mirror may die without hurting the training.

A sink of `training.metrics.tracker`. The training thread only puts rows into a queue. Every call
into wandb (import, init, log, finish) is made on one daemon thread, because each can block for
ever: on a stopped wandb-core (W&B's background process), on a server that went away, on a full
disk.
"""

import contextlib
import logging
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from cli.errors import one_line
from cli.files import short_path
from cli.interrupts import handle_signals, unwind
from configs.training import WandbConfig
from training.metrics.sinks import (
    SILENT_S,
    Alert,
    JsonFiles,
    Row,
    RunFacts,
    Sink,
    announce_wait,
)
from training.metrics.wandb_facts import (
    checkpoint_artifact,
    define_metrics,
    send_artifact,
    wandb_config,
)
from training.metrics.wandb_run import (
    first_step,
    history_step,
    keep_id,
    kept_id,
    rows_of,
    values_of,
)
from training.metrics.wandb_settings import (
    Mode,
    api_key,
    base_url,
    is_trial,
    wandb_folder,
    why_unreachable,
)

if TYPE_CHECKING:  # importing it takes a third of a second, so only the mirror's thread does
    from wandb import Run

log = logging.getLogger(__name__)

QUEUE_ROWS = 10_000  # rows that wait for wandb; above that they are dropped and counted
START_TIMEOUT_S = 20.0  # for wandb-core; must be below DEAD_TIMEOUT_S
INIT_TIMEOUT_S = 15.0
DEAD_TIMEOUT_S = 30.0  # finish() waits this long for a wandb-core or a server that does not answer
UPLOAD_TIMEOUT_S = 60.0  # ... and this long for the upload to one that does
CHECKPOINT_TIMEOUT_S = 600.0  # ... with a checkpoint, of a hundred megabytes and more
ABANDON_TIMEOUT_S = 2.0
SAME_ALERT_S = 3600.0  # W&B drops an alert with the title of one that is younger


@dataclass
class WandbMirror(Sink):
    """One W&B run in the folder `wandb` beside `files`, or in WANDB_DIR; fed from a queue."""

    files: JsonFiles
    mode: Mode  # online becomes offline if no server answers
    config: WandbConfig
    facts: RunFacts
    failure: str | None = None  # the error that ended the mirror
    rows_dropped: int = 0  # because the mirror was too slow
    run_dir: Path | None = None
    core: subprocess.Popen[bytes] | None = None  # wandb-core, kept because a teardown forgets it
    doing: str = "init"  # the call into wandb that is being made, for the warning if it fails
    queue: "SimpleQueue[tuple[str, Row] | Alert | None]" = field(default_factory=SimpleQueue)
    exit_code: int = 0
    # set once there is a W&B run, or certainly none
    started: threading.Event = field(default_factory=threading.Event)
    # set once wandb-core has taken every row and answers, or has failed
    core_answered: threading.Event = field(default_factory=threading.Event)
    finish_timeout_s: float = UPLOAD_TIMEOUT_S

    def __post_init__(self) -> None:
        self.out_dir = self.files.path.parent.resolve()
        # Otherwise artifacts are staged in the home folder. finish() removes the variable: the next
        # run of this process has a folder of its own.
        self.sets_data_dir = "WANDB_DATA_DIR" not in os.environ
        self.folder = wandb_folder(self.out_dir)
        os.environ.setdefault("WANDB_DATA_DIR", str(self.folder / "wandb" / "data"))
        # W&B's reports about itself are sent when the process exits, and hold the exit up for
        # seconds where the server is slow or gone.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

        if self.config.checkpoints:
            self.finish_timeout_s = CHECKPOINT_TIMEOUT_S
        # Read here, because the thread would find the rows of this process, too.
        self.kept_id = None if os.environ.get("WANDB_RUN_ID") else kept_id(self.out_dir / "wandb")
        self.rows_before = rows_of(self.files.path) if self.kept_id else {}
        self.first_step = 0  # W&B has the rows before this step already

        self.thread = threading.Thread(target=self.work, name="wandb-mirror", daemon=True)
        self.thread.start()

    def wait_until_started(self) -> None:
        """Waits for wandb.init, for at most INIT_TIMEOUT_S."""
        self.started.wait(INIT_TIMEOUT_S)

    def log(self, row: Row) -> None:
        """Sends a row of the history; costs the caller about a microsecond."""
        if self.failure:
            return
        if self.queue.qsize() < QUEUE_ROWS:
            self.queue.put(("log", row))
            return
        if self.rows_dropped == 0:
            log.warning(
                "W&B is too slow or hangs: rows are dropped in W&B, but metrics.jsonl has all rows"
            )
        self.rows_dropped += 1

    def alert(self, alert: Alert) -> None:
        if self.config.alerts:
            self.queue.put(alert)

    def summary(self, values: Row) -> None:
        self.queue.put(("summary", values))

    def finish(self, exit_code: int = 0) -> None:
        """Uploads what is left, for a bounded time, and leaves nothing that blocks the exit."""
        self.exit_code = exit_code
        self.queue.put(None)
        start = time.monotonic()
        try:
            with handle_signals(unwind):
                self.wait(start)
        finally:  # also when an impatient user interrupts the wait
            self.conclude(start)

    def conclude(self, start: float) -> None:
        """Abandons a thread that has not ended since `start`, and records the outcome.

        The outcome is "wandb" in summary.json.
        """
        if self.thread.is_alive():
            self.fail(f"no answer in {time.monotonic() - start:.0f} s")
            _abandon(self.core or _wandb_core())
        if self.sets_data_dir:
            os.environ.pop("WANDB_DATA_DIR", None)
        if self.files.refused and self.mode == "offline" and not self.failure:
            self.failure = "its offline file may lack rows too, because the disk refused some"
            log.warning("W&B: %s", self.failure)  # wandb itself does not report this
        outcome = {"mode": self.mode, "failure": self.failure, "rows_dropped": self.rows_dropped}
        self.files.summary({"wandb": outcome})

    def wait(self, start: float) -> None:
        """Waits for wandb-core's answer, then for the upload; logs it if that takes long.

        `start` is when the wait began, in seconds of time.monotonic().
        """
        if not self.core_answered.wait(SILENT_S):
            announce_wait("W&B", DEAD_TIMEOUT_S)
        if not self.core_answered.wait(max(0.0, start + DEAD_TIMEOUT_S - time.monotonic())):
            return
        self.thread.join(max(0.0, start + SILENT_S - time.monotonic()))
        if self.thread.is_alive():
            announce_wait("W&B", self.finish_timeout_s)
            self.thread.join(max(0.0, start + self.finish_timeout_s - time.monotonic()))

    @property
    def sync_command(self) -> str | None:
        """Command that uploads what the server did not get, or None if it got everything.

        If W&B's own record lacks rows, too, the command sends metrics.jsonl.
        """
        if self.rows_dropped or (self.failure and self.doing == "log"):
            return f"python -m profiling log {shlex.quote(short_path(self.out_dir))} --metrics"
        if self.run_dir is None or (self.mode == "online" and not self.failure):
            return None
        return f"wandb sync {shlex.quote(short_path(self.run_dir))}"

    def work(self) -> None:
        try:
            run = self.start()
            self.run_dir = Path(run.dir).parent
            define_metrics(run)
            self.started.set()
            self.doing = "log"
            self.catch_up(run)
            results: Row = {}
            while (item := self.queue.get()) is not None:
                if isinstance(item, Alert):
                    run.alert(item.title, item.text, item.level, SAME_ALERT_S)
                    continue
                kind, row = item
                if kind == "summary":
                    results = {**results, **row}
                    run.summary.update(values_of(row))
                elif (step := history_step(row)) >= self.first_step:
                    run.log(values_of(row), step=step, commit=True)
            self.doing = "finish"
            run.status()  # a round trip to wandb-core, which a stopped one does not answer
            if self.mode == "online" and why_unreachable(base_url()):
                self.finish_timeout_s = DEAD_TIMEOUT_S
            self.core_answered.set()
            if self.config.checkpoints:  # after the answer, as reading and hashing it may take long
                self.send_checkpoint(run, results)
            run.finish(self.exit_code)
        except Exception as error:
            self.fail(one_line(f"{type(error).__name__}: {error}").removesuffix(":"))
        finally:
            self.started.set()
            self.core_answered.set()
            _teardown()

    def send_checkpoint(self, run: "Run", results: Row) -> None:
        if artifact := checkpoint_artifact(self.out_dir, self.facts, results):
            aliases, registry = [f"run-{run.id}"], self.config.registry
            if unlinked := send_artifact(run, artifact, aliases, registry):
                log.warning("W&B: %s", unlinked)

    def catch_up(self, run: "Run") -> None:
        """Sends the rows of a resumed run that the server never got, as an earlier process failed.

        Offline nobody can tell what the server has, so it is assumed to have all of metrics.jsonl.
        A new run just stores its id for later resumes.
        """
        if self.kept_id is None:
            with contextlib.suppress(OSError):  # then a resume makes another W&B run
                keep_id(self.out_dir / "wandb", run.id)
            return
        if self.mode == "offline":
            self.first_step = max(self.rows_before, default=-1) + 1
            return
        self.first_step = run.starting_step
        for step, row in self.rows_before.items():
            if self.first_step <= step < first_step(self.facts.iteration):
                run.log(values_of(row), step=step, commit=True)

    def start(self) -> "Run":
        """Starts the W&B run, offline if it cannot be online."""
        if self.mode == "online":
            reason = why_unreachable(base_url())
            if reason is None:
                try:
                    run = self.wandb_init("online")
                    log.info("W&B run: %s", run.url)
                    return run
                except Exception as error:
                    reason = one_line(f"{type(error).__name__}: {error}")
            log.warning("W&B cannot be online (%s); this run is recorded offline", reason)
            self.mode = "offline"
        return self.wandb_init("offline")

    def wandb_init(self, mode: Mode) -> "Run":
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)  # else wandb takes one under /tmp
        _disable_telemetry()
        # Its informative lines would break a progress bar; its warnings stay.
        try:
            wandb.setup(wandb.Settings(show_info=False, x_service_wait=START_TIMEOUT_S))
        except Exception as error:
            _kill_unanswering(error)
            raise
        self.core = _wandb_core()
        settings = wandb.Settings(
            silent=True,  # the run's own header and footer
            console="off",  # a captured print() would call into wandb on the training thread
            api_key=api_key() if mode == "online" else None,  # given, it is never asked for
            disable_git=True,  # neither the diff nor a remote URL, which may hold a token
            disable_code=True,
            save_code=False,
            init_timeout=INIT_TIMEOUT_S,
            finish_timeout=self.finish_timeout_s - 5.0,  # wandb-core must give up before we do
            finish_timeout_raises=True,
            # The rows have the GPU's power, clocks and memory already, sampled each 100 ms and
            # without evaluations. W&B's system metrics only repeat them: their default of 15 s is
            # enough.
        )
        # create_new touches no other run of this process and sets no global wandb.run.
        trial = is_trial()  # which has project, entity and name from its sweep
        return wandb.init(
            entity=None if trial else self.config.entity,
            project=None if trial else self.config.project,
            name=self.config.name or (None if trial else self.facts.name),
            group=self.config.group,
            job_type=os.environ.get("WANDB_JOB_TYPE") or self.facts.job_type,
            tags=list(dict.fromkeys([*self.config.tags, *self.facts.tags])),
            notes=self.config.notes,
            config=wandb_config(self.facts),
            mode=mode,
            id=self.kept_id,
            resume="allow" if self.kept_id else None,  # offline: `wandb sync` appends then
            dir=self.folder,
            reinit="create_new",
            settings=settings,
        )

    def fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = f"{self.doing}: {reason}"
            log.warning("W&B failed in %s; metrics.jsonl is still written", self.failure)


def _disable_telemetry() -> None:
    """Switches off W&B's reports about itself, for which wandb has no public switch.

    If wandb-core dies as it starts, they wait for a lock that wandb.setup holds until they are
    done, that is for ever.
    """
    with contextlib.suppress(Exception):
        from wandb.analytics.opentelemetry import opentelemetry_proxy

        opentelemetry_proxy.disable()


def _teardown() -> None:
    """Ends wandb-core and the connection to it.

    wandb would do that itself in an atexit hook, which waits for wandb-core without a limit. The
    teardown begins by removing that hook, so that it may hang or fail here without harm.
    """
    with contextlib.suppress(Exception, SystemExit):
        import wandb

        wandb.teardown()


def _abandon(wandb_core: subprocess.Popen[bytes] | None) -> None:
    """Gets rid of a wandb-core on which the mirror's thread hangs.

    One that still runs ends at the teardown and completes its file. One that is stopped has to be
    killed: it would hold our stdout open, and `train.py | tee log` would wait for it for ever.
    """
    until = time.monotonic() + ABANDON_TIMEOUT_S
    teardown = threading.Thread(target=_teardown, daemon=True)
    teardown.start()
    teardown.join(ABANDON_TIMEOUT_S)
    if wandb_core is None:
        return
    try:  # the teardown returns at once where the mirror's thread hangs in one of its own
        wandb_core.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        wandb_core.kill()


def _kill_unanswering(error: Exception) -> None:
    """Kills a wandb-core that never said where it listens; only wandb's `error` gives its pid."""
    if process := re.search(r"wandb-core PID=(\d+)", str(error)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process[1]), signal.SIGKILL)


def _wandb_core() -> subprocess.Popen[bytes] | None:
    """W&B's background process, for which wandb has no public name, or None if there is none."""
    with contextlib.suppress(Exception):
        from wandb.sdk import wandb_setup

        # not by singleton(): its lock may be held by the call into wandb that hangs
        singleton = wandb_setup._singleton
        connection = singleton._connection if singleton else None
        service = connection._proc if connection else None
        return service._process if service else None
    return None
