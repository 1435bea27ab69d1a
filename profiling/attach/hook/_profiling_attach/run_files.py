"""The files of a run, in the form that the readers of `profiling` expect.

config.yaml, environment.json, metrics.jsonl (a row for ten steps, or for more short ones),
profile/window-N.json with its capture, step_times.json, and at the end summary.json and
facts/rankN.json.
"""

import json
import math
import os
import platform
import statistics
import sys
import time
from contextlib import suppress
from itertools import compress

from _profiling_attach.laps import CAPTURED, FREE, uses_gpu
from _profiling_attach.leftovers import leftovers_removed
from _profiling_attach.phases import is_timed

ROW_STEPS = 10  # steps of a row
FLUSH_S = 0.5  # between two writes of rows: what a kill loses at most
LOOK_S = 0.02  # between two looks at what is to be written, in LOOKS steps: one takes 4 us
LOOKS = (10, 20, 50, 100)  # of which each ends with some row, and with some timed phases
MOST_ROWS = 25  # of a write: short steps share a row, as each takes some 20 us to write
FREE_LAPS = 20  # steps before and after a window that tell what capturing costs
BEGINNING = "# every key of this run: the command of a program\n"
RANKS_WAIT_S = 10.0  # at most, until all ranks of this host have made their last step
REQUEST = "trigger.json"  # of `profiling trigger`
FOR_RANKS = "trigger-ranks.json"  # all requests so far, as rank 0 hands them on
RANKS_LEAD = 20  # steps from a request to the window of all ranks, which look every ten steps


class RunFiles:
    def __init__(self, recorder):
        self.recorder, self.torch = recorder, recorder.torch
        self.rank, self.world_size = rank_and_world_size()
        self.folder = self.own_folder(recorder.settings.folder)
        self.began_s = time.perf_counter()
        self.windows = 0
        self.manifest, self.window_end = None, 0
        self.requests = []  # for windows of several ranks, so far
        if self.rank == 0:
            self.write("config.yaml", self.config(), BEGINNING)
            self.write("environment.json", self.environment())
        self.start_rows()

    def own_folder(self, folder):
        """The run's folder; one inside it for a second program that trains in the same command.

        Its ranks have one together, named after the process that started them; torchrun starts
        them again after one has failed.
        """
        processes = [os.getpid()] if self.world_size == 1 else [os.getppid(), os.getpid()]
        for place in [folder, *(os.path.join(folder, f"process-{pid}") for pid in processes)]:
            os.makedirs(place, exist_ok=True)
            with suppress(FileExistsError):
                mark = os.path.join(place, f"trained-rank{self.rank}")
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                return place
        return place

    def name(self, stem, ending):
        """STEM and ENDING, with the rank in between where there are several."""
        return stem + (f"-rank{self.rank}" if self.world_size > 1 else "") + ending

    def write(self, name, content, comment=""):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = path + ".tmp"
        with leftovers_removed(partial):
            with open(partial, "w") as file:
                file.write(comment)
                json.dump(content, file, indent=2)
                file.write("\n")
            os.replace(partial, path)

    # rows

    def start_rows(self):
        """Begin the rows of a run, or begin them again: readers drop those before."""
        self.rows_end, self.flushed_s, self.flushed_steps = 0, 0.0, 0
        self.look_steps = LOOKS[0]
        self.seen = []  # for each row: (seconds since the beginning, data's time in ms or None)
        self.waits = 0  # times of data so far
        self.append([{"run": self.in_force(), "iter": 0}])

    def append(self, rows):
        name = "metrics.jsonl" if self.rank == 0 else f"metrics-rank{self.rank}.jsonl"
        with open(os.path.join(self.folder, name), "a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))

    def write_rows(self, done, at_end=False):
        """Write the rows of the steps that the GPU has finished, at most twice a second. Returns
        whether it did."""
        now_s = time.perf_counter()
        self.see_rows(math.ceil(done / ROW_STEPS) - len(self.seen), now_s)
        if not at_end and now_s - self.flushed_s < FLUSH_S:
            return False
        step_s = (now_s - self.flushed_s) / max(done - self.flushed_steps, 1)
        self.flushed_s, self.flushed_steps = now_s, done
        if self.world_size == 1:  # ranks look at the same steps
            self.look_steps = next((n for n in LOOKS if n * step_s >= LOOK_S), LOOKS[-1])
        finished = self.recorder.laps.read(wait=at_end)
        rows = []
        tens = (finished - self.rows_end) // ROW_STEPS
        steps = ROW_STEPS * max(1, math.ceil(tens / MOST_ROWS))
        while finished - self.rows_end >= steps or (at_end and finished > self.rows_end):
            end = min(self.rows_end + steps, finished)
            rows.append(self.row(self.rows_end, end))
            self.rows_end = end
        if rows:
            self.append(rows)
        return True

    def see_rows(self, count, now_s):
        """Keep the time at which this many more rows were over, and the newest time of data."""
        if count > 0:
            waits = self.recorder.phases.ms.get("data", ())
            data_ms = waits[-1] if len(waits) > self.waits else None
            elapsed_s, self.waits = now_s - self.began_s, len(waits)
            self.seen += [(elapsed_s, None)] * (count - 1) + [(elapsed_s, data_ms)]

    def row(self, first, end):
        laps = self.recorder.laps
        free_ms, labels = laps.ms[first:end], laps.labels[first:end]
        captured = len(labels) - labels.count(FREE)
        if captured:
            free_ms = list(compress(free_ms, [label == FREE for label in labels]))
        if laps.cuda is not None:  # else all are timed
            free_ms = [ms for ms in free_ms if ms is not None]
        looks = self.seen[first // ROW_STEPS : math.ceil(end / ROW_STEPS)]
        elapsed_s = looks[-1][0]
        waits_ms = [data_ms for _, data_ms in looks if data_ms is not None]
        row = {"iter": end - 1, "time/elapsed_s": elapsed_s}
        if free_ms:
            row.update(speeds_of(free_ms))
        if waits_ms:
            row["time/data_ms"] = waits_ms[-1]
        if captured:
            row["profile/captured_steps"] = captured
        return row

    # windows

    def take_request(self, done):
        """Take the request of `profiling trigger` for a window; None without one.

        Rank 0 reads it, and hands it on with a step that no rank has reached. Raises ValueError
        for a file that is no such request.
        """
        if self.rank:
            return self.request_for_ranks(done)
        path = os.path.join(self.folder, REQUEST)
        if not os.path.exists(path):
            return None
        try:
            with open(path) as file:
                request = json.load(file)
            if not isinstance(request, dict) or not isinstance(request.get("steps") or 1, int):
                raise ValueError(f"{request!r:.80}")
            request["start"] = done + (RANKS_LEAD if self.world_size > 1 else 1)
            if self.world_size > 1:
                self.requests.append(request)
                self.write(FOR_RANKS, self.requests)
        except ValueError as error:
            raise ValueError(f"the request is damaged: {error}") from None
        finally:
            os.remove(path)
        return request

    def request_for_ranks(self, done):
        """The next request that rank 0 has handed on; None without."""
        path = os.path.join(self.folder, FOR_RANKS)
        if not os.path.exists(path):
            return None
        with open(path) as file:
            handed_on = json.load(file)
        if len(handed_on) == len(self.requests):
            return None
        request = handed_on[len(self.requests)]
        self.requests.append(request)
        if request["start"] <= done:
            raise ValueError(f"step {request['start']}, where all ranks begin, was over")
        return request

    def write_window(self, window):
        """Close the window, and write its capture and its manifest."""
        self.windows += 1
        stem = os.path.join(self.folder, "profile", self.name(f"window-{self.windows}", ""))
        os.makedirs(os.path.dirname(stem), exist_ok=True)
        names = window.close(stem)
        if window.not_sampled:
            self.recorder.notes.append(f"Python's stack was not sampled: {window.not_sampled}")
        laps = self.recorder.laps
        laps.read(wait=True)
        before = laps.with_label(FREE)[-FREE_LAPS:]
        captured = laps.with_label(CAPTURED, window.first)
        steps = laps.labels[window.first :].count(CAPTURED)
        self.window_end = len(laps.ms)
        self.manifest = {
            "schema_version": 1,
            "kind": window.kind,
            "window": {
                "first_iteration": window.first,
                "last_iteration": window.first + steps - 1 if steps else None,
                "steps": steps,
                "steps_asked": window.steps,
                "complete": window.ended_by is None,
                "ended_by": window.ended_by,
                "errors": window.notes,
            },
            "step_ms": {"before": summary(before), "captured": summary(captured), "after": None},
            "files": names,
            "rank": self.rank,
            "world_size": self.world_size,
            "device": self.device(),
            "process": {
                "cores_used": window.cores_used,
                "compute_threads": self.torch.get_num_threads(),
                "memory_bytes": resident_bytes(),
            },
            "environment": self.environment(),
        }
        self.write_manifest()

    def drop_only_window(self):
        """Remove the capture of the only window so far. Returns whether there was one."""
        if self.windows != 1:  # others were asked for while the program ran
            return False
        for name in [*self.manifest["files"], self.name("window-1", ".json")]:
            os.remove(os.path.join(self.folder, "profile", name))
        self.windows, self.manifest, self.window_end = 0, None, 0
        return True

    def write_manifest(self):
        self.write("profile/" + self.name(f"window-{self.windows}", ".json"), self.manifest)

    def complete_manifest(self):
        """Add the steps behind the window; readers tell what capturing cost by both sides."""
        free = self.recorder.laps.with_label(FREE, self.window_end)[:FREE_LAPS]
        self.manifest["step_ms"]["after"] = summary(free)
        self.write_manifest()

    # the end

    def write_end(self):
        recorder = self.recorder
        laps = recorder.laps
        self.write_rows(len(laps.ms), at_end=True)
        if self.manifest:
            self.complete_manifest()
        free = [ms if label == FREE else None for ms, label in zip(laps.ms, laps.labels)]
        self.write(self.name("step_times", ".json"), {"first_iteration": 0, "ms": free})
        self.write(f"facts/rank{self.rank}.json", self.facts())
        if self.rank == 0 and laps.with_label(FREE):
            speeds = speeds_of(laps.with_label(FREE))
            self.write("summary.json", {"iterations": len(laps.ms), **speeds})

    def wait_for_ranks(self):
        """Wait until the ranks on this host are at their end, too: a peer that goes first may take
        what they still read from it."""
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size))
        deadline_s = time.perf_counter() + RANKS_WAIT_S
        while len(os.listdir(os.path.join(self.folder, "facts"))) < ranks:
            if time.perf_counter() > deadline_s:
                return
            time.sleep(0.01)

    def facts(self):
        """Facts seen of the program: how a step ends, and what two commands are compared by."""
        recorder = self.recorder
        rule = recorder.rule
        sampled = recorder.sampled_steps
        return {
            "rule": rule.sentence(recorder.names),
            "steps": len(recorder.laps.ms),
            "skipped_steps": recorder.skipped_steps,
            "backwards_per_step": recorder.sampled_backwards / sampled if sampled else None,
            "host_ms": {  # without the first step, in which a program warms up
                phase: statistics.median(ms[1:])
                for phase, ms in recorder.phases.ms.items()
                if len(ms) > 1
            },
            "timed_step_ms": median_of_timed(recorder.laps),
            "parameters": recorder.parameters,
            "shapes": sorted(recorder.shapes),
            "losses": self.losses(),
            "world_size": self.world_size,
            "notes": recorder.notes,
        }

    def losses(self):
        """Losses that were kept, by their step; the only place that waits for them."""
        try:
            return {str(step): loss.item() for step, loss in self.recorder.losses.items()}
        except Exception as error:  # the GPU failed, and the program ends by that
            self.recorder.notes.append(f"losses could not be read: {error!r}")
            return {}

    def config(self):
        settings = self.recorder.settings
        return {
            "command": settings.command,
            "out_dir": settings.folder,
            "in_force": self.in_force(),
        }

    def in_force(self):
        return {
            "device": self.device(),
            "torch": str(self.torch.__version__),
            "ranks": self.world_size,
        }

    def device(self):
        return self.torch.cuda.get_device_name() if uses_gpu(self.torch) else "cpu"

    def environment(self):
        return {
            "python": platform.python_version(),
            "torch": str(self.torch.__version__),
            "cuda": self.torch.version.cuda,
            "gpu": None if self.device() == "cpu" else self.device(),
            "cpu_cores": os.cpu_count(),
        }


def speeds_of(laps):
    """Median and mean of these step times: the mean is that of a step where steps come in bursts.

    Workers of a loader that end at about the same time give one long step, and then short ones.
    """
    return {"time/step_ms": statistics.median(laps), "time/mean_step_ms": statistics.fmean(laps)}


def median_of_timed(laps):
    """Median of the steps whose phases are timed, without the first; None without any."""
    timed = [ms for at, ms in enumerate(laps.ms) if at and ms is not None and is_timed(at)]
    return statistics.median(timed) if timed else None


def resident_bytes():
    """Memory of this process in RAM; None where the system has no /proc."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def summary(laps):
    """Median and all of these step times, or None without any."""
    return {"median": statistics.median(laps), "laps": laps} if laps else None


def rank_and_world_size():
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
