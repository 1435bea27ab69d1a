"""The record of pairs: what was measured of each program, its halves, its files, and slices of it.

OUT/GPU/first and OUT/GPU/second have a folder `measured` with a record for each program, and
`captures`. OUT/GPU/manifest.json has the hash of each file; OUT/opened.json says when the second
half was opened first.
"""

import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cli.files import replacement_for, write_text
from profiling.shared.json_records import read_json, to_json
from validation.pair_programs.series import BEFORE, HALVES, SEED, Change, Half

MANIFEST, OPENED, COPIED = "manifest.json", "opened.json", "copied.json"
LARGEST_BYTES = 6_000_000  # of a capture that is kept
SLICE_BYTES = 8_000_000  # of a file of a slice


@dataclass(frozen=True)
class Machine:
    gpu: str
    driver: str
    cpu: str
    cores: int
    versions: dict[str, str]  # of Python, nsys and packages


@dataclass(frozen=True)
class Capture:
    """A window that a profiler captured, and laps without it in the same process."""

    tool: str  # nsys, torch.profiler or jax.profiler
    variant: str
    steps: int
    ms: float  # a step while captured
    laps_before_ms: list[float]  # a step, just before the window
    laps_after_ms: list[float]  # a step, just behind it
    file: str | None  # in `captures`; None: it was too large
    bytes: int  # of the file, or that it would have had
    sha256: str


@dataclass(frozen=True)
class Measured:
    """Record of one program: its variants in turns, without a profiler, and captures."""

    program: str
    source: str
    series: str
    machine: Machine
    clocks: str  # of nvidia-smi behind the rounds: MHz of SMs and memory, W, degrees
    commit: str | None
    when: str  # UTC
    settled: dict[str, int]  # variant -> steps before each block
    block: dict[str, int]  # variant -> steps of a block
    rounds_ms: dict[str, list[float]]  # variant -> a step of its own work, for each round
    changes: list[Change]
    not_made: list[str]  # variants that failed
    captures: list[Capture]
    took_s: float


@dataclass(frozen=True)
class Manifest:
    seed: str  # of the halves
    halves: dict[str, Half]  # of programs
    programs: int  # measured
    pairs: int
    sha256: dict[str, str]  # of each file, by its path in the GPU's folder


@dataclass(frozen=True)
class Opened:
    when: str  # UTC
    commit: str | None


@dataclass(frozen=True)
class Pair:
    """A program as it is and with one change, on one GPU."""

    program: str
    change: Change
    gpu: str
    half: Half
    before_ms: list[float]  # a step, for each round
    after_ms: list[float]  # of the same work
    captures: list[Capture]  # of the program as it is
    folder: Path  # that these lie in

    @property
    def gain(self) -> float:
        """Share of the step that the change takes away; negative: it takes longer."""
        return 1 - median(self.after_ms) / median(self.before_ms)


def folder_of(out: Path, gpu: str) -> Path:
    """Folder of what a GPU gave: out/nvidia-h200."""
    return out / "-".join(gpu.lower().split())


def place_of(folder: Path, program: str) -> Path:
    """Record of a program, in the folder of its half."""
    return folder / HALVES[program] / "measured" / f"{program}.json"


def measured_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/measured/*.json"))


def hash_of(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_manifest(folder: Path) -> Manifest:
    """Write and return the manifest of what lies in a GPU's folder."""
    records = [read_json(file, Measured) for file in measured_files(folder)]
    kept = [*measured_files(folder), *sorted(folder.glob("*/captures/*.xz"))]
    pairs = sum(len(each.rounds_ms) - 1 for each in records)
    hashes = {file.relative_to(folder).as_posix(): hash_of(file) for file in kept}
    manifest = Manifest(SEED, HALVES, len(records), pairs, hashes)
    write_text(folder / MANIFEST, to_json(manifest))
    return manifest


def write_slice(folder: Path, name: str) -> list[Path]:
    """Put what no earlier slice has into out/slices/NAME-1.tar and so on, and return these."""
    copied = folder / COPIED
    known = set(read_json(copied, list[str])) if copied.exists() else set()
    names = list(read_json(folder / MANIFEST, Manifest).sha256)
    parts, size = list[list[str]](), SLICE_BYTES
    for each in (name for name in names if name not in known):
        more = (folder / each).stat().st_size + 2048  # with the header and what fills a block
        if size + more > SLICE_BYTES:
            parts, size = [*parts, [MANIFEST]], (folder / MANIFEST).stat().st_size + 12_288
        parts[-1].append(each)
        size += more
    tars = [folder.parent / "slices" / f"{name}-{n}.tar" for n in range(1, len(parts) + 1)]
    for tar, part in zip(tars, parts, strict=True):
        tar.parent.mkdir(exist_ok=True)
        with replacement_for(tar) as temporary, tarfile.open(temporary, "w") as archive:
            for each in part:
                archive.add(folder / each, f"{folder.name}/{each}")
    write_text(copied, to_json(sorted({*known, *names})))
    return tars


def join_slices(tars: Sequence[Path], out: Path) -> list[Manifest]:
    """Unpack slices into OUT and check every file; returns a manifest for each GPU.

    Raises ValueError for a file that no slice has, or that is not as it was when measured.
    """
    told: dict[Path, str] = {}
    for tar in tars:
        with tarfile.open(tar) as archive:
            archive.extractall(out, filter="data")
            names = archive.getnames()
        for name in (name for name in names if name.endswith(f"/{MANIFEST}")):
            folder = (out / name).parent
            hashes = read_json(out / name, Manifest).sha256
            told |= {folder / each: digest for each, digest in hashes.items()}
    for file, digest in told.items():
        if not file.exists():
            raise ValueError(f"{file}: is in none of the slices; copy the others, too")
        if hash_of(file) != digest:
            raise ValueError(f"{file}: is not the file that was measured; copy its slice again")
    return [write_manifest(folder) for folder in sorted({file.parents[2] for file in told})]


def open_second(out: Path, allowed: bool, now: Opened) -> Opened:
    """Say when the second half was opened first; that is now where it was not open.

    Raises ValueError unless it is open or `allowed` to be opened.
    """
    file = out / OPENED
    if file.exists():
        return read_json(file, Opened)
    if not allowed:
        raise ValueError(
            "half: the second half is for the rules as they are frozen; open it once, with "
            "open_second_half=true"
        )
    write_text(file, to_json(now))
    return now


def read_pairs(out: Path, half: Half) -> Iterator[Pair]:
    """Pairs of a half, of all GPUs. Raises ValueError for the second while it is not open."""
    if half == "second" and not (out / OPENED).exists():
        open_second(out, False, Opened("", None))
    for file in sorted(out.glob(f"*/{half}/measured/*.json")):
        measured = read_json(file, Measured)
        yield from pairs_of(measured, half, file.parents[1] / "captures")


def pairs_of(measured: Measured, half: Half, folder: Path) -> Iterator[Pair]:
    rounds_ms: Mapping[str, list[float]] = measured.rounds_ms
    captures = [each for each in measured.captures if each.variant == BEFORE]
    for change in measured.changes:
        if change.name in rounds_ms:
            after_ms = [ms / change.work for ms in rounds_ms[change.name]]
            gpu, before_ms = measured.machine.gpu, rounds_ms[BEFORE]
            yield Pair(measured.program, change, gpu, half, before_ms, after_ms, captures, folder)
