"""Captures of this trainer, made on an H200: the window is whole, the ranges own their kernels.

tests/captures/{slow,flash}_{eager,compile}.sqlite.gz are windows of 20 iterations (100 to 119) of
config/shakespeare_char.yaml, recorded by `python -m profiling run` with nsys 2025.3.1 and scrubbed;
docs/benchmarks.md has the commands. Under compile the phases replay CUDA graphs. For slow_eager and
flash_compile what `nsys stats --format csv` printed of the report lies beside them (*_sum.csv).

Later ones of the same trainer, read by test_whole_reports.py; the machine's other processes and the
table of graph nodes were removed from the exports by SQL, and besides:
- flash_metrics.sqlite.gz: --preset metrics, compiled. Of GPU_METRICS only the samples from 1 ms
  before the window to 1 ms after it, without what repeats another metric in a second unit
  ([Avg ...]) or is about graphics
- flash_attr_{true,false}.sqlite.gz: eager, profile.attribute_backward=true and false. Only what the
  first 8 of 20 iterations launched
- flash_eager.trace.json.gz: eager, torch.profiler, 5 iterations
- ranks/hidden_waits/rank{0,1}.trace.json.gz: two GPUs, GPT-2 124M, ddp, torch.profiler, 2 of 6
  iterations; validation.plants.ranks gave rank 1 its extra_products. Of PyTorch's operators only
  those that say which collective is called, and no flows: read by test_ranks_slowed.py
The two manifests lost their folders and were given the vocab_size that the trainer writes now.
"""

import gzip
import sqlite3

import pytest

from tests.paths import CAPTURES

NAMES = ("slow_eager", "slow_compile", "flash_eager", "flash_compile")
PUSH_POP = 59
PROCESS = ~0xFFFFFF  # of a globalTid

# what `nsys stats -r nvtx_gpu_proj_sum` printed of the same reports: total projected time, in ms
STOCK_MS = {
    "slow_eager": {"data": 1.46623, "forward": 119.915, "backward": 178.173, "optimizer": 4.89662},
    "slow_compile": {
        "data": 0.522015,
        "forward": 54.9525,
        "backward": 79.3484,
        "optimizer": 2.9991,
    },
    "flash_eager": {"data": 2.32483, "forward": 173.146, "backward": 216.439, "optimizer": 30.1691},
    "flash_compile": {
        "data": 0.717758,
        "forward": 36.2926,
        "backward": 72.4637,
        "optimizer": 3.01564,
    },
}
FLASH_KERNELS = 4  # forward, and three of backward, in each of the six blocks


MORE = ("flash_metrics", "flash_attr_true", "flash_attr_false")
FOLDERS = ("/home/", "/root/", "/tmp/", "/opt/", "/usr/", "PATH=")


@pytest.fixture(scope="module", params=NAMES)
def capture(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("captures") / f"{request.param}.sqlite"
    path.write_bytes(gzip.decompress((CAPTURES / f"{request.param}.sqlite.gz").read_bytes()))
    database = sqlite3.connect(path)
    yield request.param, database
    database.close()


def ranges(database: sqlite3.Connection) -> list[tuple[str, int, int, int]]:
    """(name, start, end, thread) of the project's ranges, in order."""
    return database.execute(
        "SELECT COALESCE(n.text, s.value) AS name, n.start, n.end, n.globalTid FROM NVTX_EVENTS n "
        "LEFT JOIN StringIds s ON s.id = n.textId WHERE n.eventType = ? "
        "AND n.domainId = (SELECT domainId FROM NVTX_EVENTS WHERE text = 'nanogpt' LIMIT 1) "
        "ORDER BY n.start",
        (PUSH_POP,),
    ).fetchall()


def projections(database: sqlite3.Connection) -> dict[str, list[int]]:
    """Nanoseconds from the first GPU operation of each phase to its last, per instance."""
    operations = []
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        try:
            operations += database.execute(
                "SELECT r.start, r.globalTid, k.start, k.end FROM "
                f"CUPTI_ACTIVITY_KIND_{table} k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
                f"ON r.correlationId = k.correlationId AND (r.globalTid & {PROCESS}) = k.globalPid"
            ).fetchall()
        except sqlite3.OperationalError:  # no such operation was captured
            continue
    operations.sort()
    found: dict[str, list[int]] = {}
    for name, start, end, thread in ranges(database):
        owned = [(a, b) for at, of, a, b in operations if start <= at <= end and of == thread]
        if owned:
            spread = max(b for _, b in owned) - min(a for a, _ in owned)
            found.setdefault(name, []).append(spread)
    return found


def test_there_are_exactly_the_iterations_that_were_asked_for(capture):
    _, database = capture
    iterations = [row for row in ranges(database) if row[0].startswith("iteration ")]
    assert [name for name, *_ in iterations] == [f"iteration {i}" for i in range(100, 120)]
    assert all(end is not None for _, _, end, _ in iterations)


def test_each_phase_comes_once_an_iteration_and_nothing_else_falls_into_the_window(capture):
    name, database = capture
    counts: dict[str, int] = {}
    for phase, *_ in ranges(database):
        if not phase.startswith("iteration "):
            counts[phase] = counts.get(phase, 0) + 1
    phases = ["data", "forward", "backward", "optimizer", *(["clip"] if "eager" in name else [])]
    assert counts == {**dict.fromkeys(phases, 20), "log": 2}  # no evaluate, no checkpoint


def test_the_phases_own_what_the_stock_report_says(capture):
    name, database = capture
    found = projections(database)
    for phase, stock_ms in STOCK_MS[name].items():
        assert len(found[phase]) == 20
        assert sum(found[phase]) / 1e6 == pytest.approx(stock_ms, rel=1e-5)


def test_the_attention_switch_shows_in_the_kernels(capture):
    name, database = capture
    (count,) = database.execute(
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s "
        "ON s.id = k.shortName WHERE s.value LIKE 'flash_%'"
    ).fetchone()
    assert count == (20 * 6 * FLASH_KERNELS if name.startswith("flash") else 0)


@pytest.mark.parametrize("name", [*NAMES, *MORE])
def test_nothing_of_the_machine_is_in_it(name):
    database = sqlite3.connect(":memory:")
    database.deserialize(gzip.decompress((CAPTURES / f"{name}.sqlite.gz").read_bytes()))
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
        for row in database.execute(f'SELECT * FROM "{table}"'):
            text = "\n".join(value for value in row if isinstance(value, str))
            assert "\0" not in text
            assert not any(word in text for word in FOLDERS)
    database.close()


def test_nothing_of_the_machine_is_in_the_trace_and_the_manifests():
    traces = [
        CAPTURES / "flash_eager.trace.json.gz",
        *(CAPTURES / "ranks" / "hidden_waits").iterdir(),
    ]
    texts = [gzip.decompress(file.read_bytes()).decode() for file in traces]
    texts += [file.read_text(encoding="utf-8") for file in CAPTURES.glob("*.window-1.json")]
    assert len(texts) == 5
    for text in texts:
        assert not any(word in text for word in FOLDERS)
