"""One micro-step of the configured training, compiled afresh, and the code that came of it.

Nothing comes from a cache; the output code that inductor writes is read, indexed and kept.
Called by profiling.verbs.compiled.
"""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cli.files import empty_folder, write_text
from profiling.report.lab.compiled_document import compiled_document
from profiling.report.renderers.page import page
from profiling.shared.json_records import to_json
from profiling.tools.torch_compile import (
    Binary,
    Graph,
    GraphEntry,
    Index,
    KernelEntry,
    graph_breaks,
    is_output_code,
    parse_graph,
    triton_binaries,
)

if TYPE_CHECKING:
    from configs.schema import Config

ENDINGS = {"triton": ".py", "cpp": ".cpp"}
UNKNOWN = Binary(None, None, None, None, None)


@dataclass(frozen=True)
class Compilation:
    """The output of compiling one forward and backward pass."""

    index: Index
    files: dict[str, str]  # path of a file in the folder -> its text


def check_ours(folder: Path) -> None:
    """Raise ValueError if `folder` holds something else than this verb's output, which is
    replaced."""
    if folder.exists() and not (folder.is_dir() and (folder / "index.json").is_file()):
        raise ValueError(
            f"{folder}: already exists and contains no index.json of this verb; give another "
            "folder with --out"
        )


def compile_once(config: "Config", cache: Path) -> Compilation:
    """Compile one micro-step of the configuration into the empty folder `cache`.

    Raises ValueError if nothing was compiled.
    """
    # both compilers write to `cache`, and find nothing there: a cached graph would leave no code
    config = replace(config, compile_cache=str(cache))
    os.environ["TRITON_CACHE_DIR"] = f"{cache}/triton"
    os.environ.pop("TORCH_LOGS", None)  # it would override the log of graph breaks

    import torch

    from data.dataset import load_dataset
    from data.prepare import prepare
    from profiling.recording.spans import NoSpans
    from train import batches_of, model_of
    from training.checks import resolve_and_check
    from training.ranks.distributed import join_run
    from training.step.warm_up import first_micro_step

    with join_run(config.device) as ranks, collect_graph_breaks() as messages:
        config = resolve_and_check(config, ranks.device, ranks.world_size)
        dataset = load_dataset(prepare(config).directory)
        x, y = batches_of(dataset, "train", config, ranks).draw(0, 0)
        _, step, _ = model_of(config, dataset, NoSpans(), ranks)
        seconds = first_micro_step(step, x, y, config)
        device = torch.cuda.get_device_name(ranks.device) if x.is_cuda else "CPU"
    texts = [(str(path), path.read_text("utf-8")) for path in sorted(cache.rglob("*.py"))]
    graphs = {path: (parse_graph(text), text) for path, text in texts if is_output_code(text)}
    if not graphs:
        raise ValueError(
            "compile=true: PyTorch compiled nothing; check whether TORCH_COMPILE_DISABLE is set"
        )
    binaries = {
        (graphs[path][0].label, name): binary
        for (path, name), binary in triton_binaries(cache).items()
        if path in graphs
    }
    ordered = sorted(graphs.values(), key=lambda pair: (pair[0].number, pair[0].part != "forward"))
    entries, kernels, files = index_graphs(ordered, binaries)
    index = Index(
        torch=str(torch.__version__),
        device=device,
        attention=config.attention,
        dtype=config.dtype,
        compile_scope=config.compile_scope,
        first_micro_step_s=round(seconds, 3),
        graphs=entries,
        graph_breaks=graph_breaks(messages),
        kernels=kernels,
    )
    return Compilation(index, files)


@contextmanager
def collect_graph_breaks() -> Iterator[list[str]]:
    """Collect the lines that Dynamo logs about graph breaks within the block, instead of printing
    them."""
    import torch._dynamo  # creates its loggers

    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return False  # no handler gets it

    torch._logging.set_logs(graph_breaks=True)
    names = [name for name in logging.root.manager.loggerDict if name.endswith("__graph_breaks")]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(keep)
    try:
        yield messages
    finally:
        for logger in loggers:
            logger.removeFilter(keep)
        torch._logging.set_logs()


def index_graphs(
    graphs: list[tuple[Graph, str]], binaries: dict[tuple[str, str], Binary]
) -> tuple[list[GraphEntry], list[KernelEntry], dict[str, str]]:
    """(graphs of the index, its kernels, the files of the folder: path -> text).

    `graphs` are pairs of a graph and its output code; `binaries` are by graph and kernel.
    """
    files: dict[str, str] = {}
    entries, kernels = [], []
    for graph, text in graphs:
        place = graph.label
        entries.append(GraphEntry(place, f"{place}/output_code.py", graph.calls))
        files[f"{place}/output_code.py"] = text
        for kernel in graph.kernels:
            stem = f"{place}/{kernel.name}"
            binary = binaries.get((place, kernel.name), UNKNOWN)
            if binary.ptx:
                files[f"{stem}.ptx"] = binary.ptx
            entry = KernelEntry(
                name=kernel.name,
                graph=place,
                anchor=f"{place}.{kernel.name}",
                language=kernel.language,
                file=stem + ENDINGS[kernel.language],
                ptx=f"{stem}.ptx" if binary.ptx else None,
                calls=sum(call.name == kernel.name for call in graph.calls),
                operators=kernel.operators,
                nodes=kernel.nodes,
                registers=binary.registers,
                spills=binary.spills,
                shared_bytes=binary.shared_bytes,
                config=binary.config,
            )
            files[entry.file] = kernel.source
            kernels.append(entry)
    return entries, kernels, files


def write_folder(folder: Path, made: Compilation) -> None:
    """Write the compilation's files, index and page; they replace `folder` only when complete."""
    partial = folder.with_name(f"{folder.name}.partial")
    empty_folder(partial)
    document = compiled_document(made.index, made.files)
    written = {"index.json": to_json(made.index), "index.html": page(document)}
    for name, text in (made.files | written).items():
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(partial / name, text)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(partial, folder)
