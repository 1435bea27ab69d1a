"""Read which lines each kernel of torch.compile was made of. Called by analysis.

Inductor says so in PyTorch's structured log (TORCH_TRACE=FOLDER INDUCTOR_PROVENANCE=1), and in what
tlparse takes out of it. Both are read where they lie in the run's folder or beside the capture.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from profiling.analysis.source.own_code import Frame
from profiling.analysis.source.source_files import run_folder_of

ARTIFACT = "inductor_provenance_tracking_kernel_stack_traces"
LOG = "dedicated_log_torch_trace_*.log"
MOST_BYTES = 256 << 20  # of a log
NUMBER = re.compile(r":\d+$")  # of the call of the kernel in its graph
FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)$', re.M)
TRACES = msgspec.json.Decoder(dict[str, list[str]])
Lines = tuple[Frame, ...]
KernelLines = dict[str, Lines]


def kernel_lines(capture: Path) -> KernelLines:
    """Kernel -> the lines of the program's own code that it was made of, in their order.

    A name that two graphs give to kernels of other lines is left out. Raises ValueError naming a
    damaged file.
    """
    found: dict[str, set[Lines]] = {}
    for path in files_beside(capture):
        try:
            for text in payloads(path):
                for name, traces in TRACES.decode(text).items():
                    if lines := own_lines(traces):
                        found.setdefault(NUMBER.sub("", name), set()).add(lines)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"{path.name}: is damaged ({error})") from error
    return {name: min(lines, key=len) for name, lines in found.items() if len(lines) == 1}


def files_beside(capture: Path) -> list[Path]:
    folders = {capture.resolve().parent, run_folder_of(capture)}
    patterns = (LOG, f"{ARTIFACT}*.json")
    found = {path for folder in folders for pattern in patterns for path in folder.glob(pattern)}
    return sorted(path for path in found if path.stat().st_size <= MOST_BYTES)


def payloads(path: Path) -> Iterator[bytes]:
    """Yield the JSON of each graph. In the log it follows the line that names it, behind a tab."""
    if path.suffix == ".json":
        yield path.read_bytes()
        return
    with open(path, "rb") as log:
        named = False
        for line in log:
            if named and line.startswith(b"\t"):
                yield line
            named = ARTIFACT.encode() in line and not line.startswith(b"\t")


def own_lines(traces: list[str]) -> Lines:
    """The innermost own line of each trace, each once, sorted."""
    frames = set[Frame]()
    for trace in traces:
        matches = FRAME.findall(trace)
        found = [Frame(file, int(line), function) for file, line, function in matches]
        frames |= set([frame for frame in found if frame.is_own][-1:])
    return tuple(sorted(frames, key=lambda frame: (frame.file, frame.line)))
