"""profile=torch: torch.profiler over the window; a gzipped Chrome trace and a table."""

import contextlib
import gzip
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.profiler import ProfilerActivity
from torch.profiler import profile as TorchProfiler

from cli.files import replacement_for, write_text
from configs.profiling import ProfileConfig
from profiling.recording.recording import Recorder

TABLE_ROWS = 100
# The level silences all that Kineto prints, such as "USDT: ... profiler_start". On a GPU the same
# switch would hide its errors, which say why CUPTI gave no kernels, so it is not set there.
KINETO_LEVEL, QUIET = "KINETO_LOG_LEVEL", "6"


@dataclass
class TorchRecorder(Recorder):
    """Runs a torch.profiler for each window: `prepare` warms its tracer up, `start` records."""

    profile: ProfileConfig
    on_cuda: bool
    profiler: TorchProfiler | None = None
    started: bool = False

    def prepare(self) -> None:
        if not self.on_cuda:
            os.environ.setdefault(KINETO_LEVEL, QUIET)  # read by Kineto at its first profiler
        self.profiler = TorchProfiler(
            activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self.on_cuda,
            record_shapes=self.profile.shapes,
            with_stack=self.profile.stack,
            profile_memory=self.profile.memory,
        )
        self.profiler.prepare_trace()

    def start(self) -> None:
        assert self.profiler is not None, "not prepared"
        self.profiler.start_trace()
        self.started = True

    def stop(self, stem: Path) -> list[Path]:
        """Write STEM.trace.json.gz and STEM.operators.txt."""
        profiler, self.profiler = self.profiler, None
        self.started = False
        assert profiler is not None, "not prepared"
        profiler.stop_trace()
        trace = stem.with_name(stem.name + ".trace.json.gz")
        write_packed_trace(profiler, trace)
        averages = profiler.key_averages(group_by_input_shape=self.profile.shapes)
        by = "self_cuda_time_total" if self.on_cuda else "self_cpu_time_total"
        table = stem.with_name(stem.name + ".operators.txt")
        text = averages.table(sort_by=by, row_limit=TABLE_ROWS, max_name_column_width=80)
        write_text(table, text)
        return [trace, table]

    def close(self) -> None:
        """End a tracer that was prepared and whose window never came."""
        if self.profiler is not None and not self.started:
            with contextlib.suppress(RuntimeError):
                self.profiler.start_trace()
                self.profiler.stop_trace()
        self.profiler = None


def write_packed_trace(profiler: TorchProfiler, path: Path) -> None:
    """Write a gzipped Chrome trace; torch's own compression, line by line, takes ten times as long.

    Raises ValueError or OSError, also where the disk is full and Kineto leaves no trace without
    saying so.
    """
    with TemporaryDirectory() as folder:
        plain = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(plain))
        with (
            open(plain, "rb") as trace,
            replacement_for(path) as packed,
            gzip.open(packed, "wb", compresslevel=6) as file,
        ):
            shutil.copyfileobj(trace, file, 1 << 20)
