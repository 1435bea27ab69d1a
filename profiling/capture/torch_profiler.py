"""profile=torch: torch.profiler over the window; a gzipped Chrome trace and a table."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from torch.profiler import ProfilerActivity
from torch.profiler import profile as TorchProfiler

from cli.files import write_text
from configs.capture import ProfileConfig
from profiling.capture.recording import Recorder

TABLE_ROWS = 100
# Kineto's level above all that it prints, "USDT: ... profiler_start" among it; on a GPU its errors,
# which tell why CUPTI gave no kernels, have the same switch, so there it is left alone
KINETO_LEVEL, QUIET = "KINETO_LOG_LEVEL", "6"


@dataclass
class TorchRecorder(Recorder):
    """One torch.profiler for each window: its tracer on from `prepare`, recording from `start`."""

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
        """Writes STEM.trace.json.gz and STEM.operators.txt."""
        profiler, self.profiler = self.profiler, None
        self.started = False
        assert profiler is not None, "not prepared"
        profiler.stop_trace()
        trace = stem.with_name(stem.name + ".trace.json.gz")
        temporary = stem.with_name(stem.name + ".tmp.json.gz")  # its end makes torch compress it
        profiler.export_chrome_trace(str(temporary))
        temporary.replace(trace)
        averages = profiler.key_averages(group_by_input_shape=self.profile.shapes)
        by = "self_cuda_time_total" if self.on_cuda else "self_cpu_time_total"
        table = stem.with_name(stem.name + ".operators.txt")
        text = averages.table(sort_by=by, row_limit=TABLE_ROWS, max_name_column_width=80)
        write_text(table, text)
        return [trace, table]

    def close(self) -> None:
        """Ends a tracer that was prepared and never came to its window."""
        if self.profiler is not None and not self.started:
            with contextlib.suppress(RuntimeError):
                self.profiler.start_trace()
                self.profiler.stop_trace()
        self.profiler = None
