"""`python -m profiling compiled`: what torch.compile made of the model, kernel by kernel.

One micro-step of the configured training, compiled afresh: nothing comes from a cache, and the
output code that inductor leaves behind is read, indexed and kept.
"""

import argparse
import dataclasses
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.files import write_text
from profiling.launch import reports
from profiling.report import compiled_page
from profiling.tools.graph_breaks import GraphBreak, graph_breaks
from profiling.tools.inductor_code import Graph, is_output_code, parse_graph
from profiling.tools.triton_binaries import Binary, triton_binaries
from profiling.verbs.run import refuse

if TYPE_CHECKING:
    from configs.schema import Config

ENDINGS = {"triton": ".py", "cpp": ".cpp"}
HELP = """\
Compiles the model of a configuration afresh and shows what torch.compile made of it.

usage: python -m profiling compiled [FLAGS] [FILE] [KEY=VALUE ...]

  FILE KEY=VALUE  as for train.py; compile=true is added

flags
  --out FOLDER    index.json, index.html and a file for each graph and kernel; out_dir/compiled
  --html FILE     the page once more, by itself
  --json FILE     the index once more, by itself

Shown are the graphs, where and why Python broke them, each generated kernel with its source and the
operators fused in it, and on a GPU its registers, spills, shared memory and PTX. The kernels of a
report of a capture in out_dir/profile lead to them (report --html).

examples
  python -m profiling compiled config/shakespeare_char.yaml attention=flash
  python -m profiling compiled config/shakespeare_char.yaml compile_scope=model
"""


@dataclass(frozen=True)
class Compilation:
    """What one forward and backward pass left behind."""

    graphs: list[tuple[Graph, str]]  # with the text of the output code
    breaks: list[GraphBreak]
    binaries: dict[tuple[str, str], Binary]  # (graph, kernel) -> what Triton compiled
    facts: dict[str, Any]


def main(argv: list[str]) -> int:
    """Raises ValueError for a mistake, and where the compiler does not work."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    for flag in ("--out", "--html", "--json"):
        parser.add_argument(flag, type=Path)
    flags, words = parser.parse_known_args(argv)
    config = composed(words)
    folder = flags.out or Path(config.out_dir) / "compiled"
    check_ours(folder)
    with tempfile.TemporaryDirectory(prefix="inductor-") as name:
        cache = Path(name).resolve()
        prepare_environment(cache)
        compilation = compile_once(config, cache)
    index = index_of(compilation)
    write_folder(folder, compilation, index)
    for file, name in ((flags.html, "index.html"), (flags.json, "index.json")):
        if file:
            write_text(file, (folder / name).read_text(encoding="utf-8"))
    compiled_page.print_index(index)
    print(f"page    {folder / 'index.html'}\nindex   {folder / 'index.json'}")
    return 0


def composed(words: list[str]) -> "Config":
    from configs.command_line import compose_one  # here: --help needs no Hydra

    config = compose_one([*words, "wandb.mode=disabled"], "compile=true")
    if not config.compile:
        raise ValueError("compile=false: nothing would be compiled; leave it out")
    return config


def check_ours(folder: Path) -> None:
    """Refuses a folder that something else lives in: what is there is replaced."""
    if folder.exists() and not (folder.is_dir() and (folder / "index.json").is_file()):
        raise ValueError(f"{folder}: exists, and holds no index.json of this verb; give --out")


def prepare_environment(cache: Path) -> None:
    """Both compilers write to `cache`, and find nothing there: a cached graph leaves no code."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    os.environ["TRITON_CACHE_DIR"] = str(cache / "triton")
    os.environ.pop("TORCH_LOGS", None)  # it would overrule the log of graph breaks


def compile_once(config: "Config", cache: Path) -> Compilation:
    import torch

    from data.dataset import load_dataset
    from data.prepare import prepare
    from profiling.capture.spans import NoSpans
    from train import batches_of, model_of, settled
    from training.distributed import started
    from training.warm_up import timed_micro_step

    with started(config.device) as ranks, heard_breaks() as messages:
        config = settled(config, ranks)
        dataset = load_dataset(prepare(config).directory)
        x, y = batches_of(dataset, "train", config, ranks).draw(0, 0)
        _, step, _ = model_of(config, dataset, NoSpans(), ranks)
        start = time.perf_counter()
        timed_micro_step(step, x, y)
        seconds = time.perf_counter() - start
        device = torch.cuda.get_device_name(ranks.device) if x.is_cuda else "CPU"
    found = {str(path): path.read_text("utf-8") for path in sorted(cache.rglob("*.py"))}
    texts = {path: text for path, text in found.items() if is_output_code(text)}
    graphs = {path: parse_graph(text) for path, text in texts.items()}
    if not graphs:
        raise ValueError("compile=true: PyTorch compiled nothing; is TORCH_COMPILE_DISABLE set?")
    binaries = {
        (label(graphs[path]), name): binary
        for (path, name), binary in triton_binaries(cache).items()
        if path in graphs
    }
    facts = {
        "torch": torch.__version__,
        "device": device,
        "attention": config.attention,
        "dtype": config.dtype,
        "compile_scope": config.compile_scope,
        "first_micro_step_s": round(seconds, 3),
    }
    ordered = sorted(graphs, key=lambda path: (graphs[path].number, graphs[path].part != "forward"))
    pairs = [(graphs[path], texts[path]) for path in ordered]
    return Compilation(pairs, graph_breaks(messages), binaries, facts)


@contextmanager
def heard_breaks() -> Iterator[list[str]]:
    """The lines that Dynamo logs about graph breaks, kept rather than printed."""
    import torch._dynamo  # its loggers exist from here on

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    torch._logging.set_logs(graph_breaks=True)
    names = [name for name in logging.root.manager.loggerDict if name.endswith("__graph_breaks")]
    loggers = [logging.getLogger(name) for name in names]
    kept = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    try:
        yield messages
    finally:
        for logger, handlers, propagate in kept:
            logger.handlers, logger.propagate = handlers, propagate
        torch._logging.set_logs()


def label(graph: Graph) -> str:
    """The graph's folder: 0_forward."""
    return f"{graph.number}_{graph.part}"


def index_of(compilation: Compilation) -> dict[str, Any]:
    """index.json. A kernel's `name` is what a profiler shows; two graphs may both use one."""
    graphs, kernels = [], []
    for graph, _ in compilation.graphs:
        place = label(graph)
        calls = [
            {"name": call.name, "is_library": call.is_library, **dataclasses.asdict(call.origins)}
            for call in graph.calls
        ]
        graphs.append({"name": place, "file": f"{place}/output_code.py", "calls": calls})
        for kernel in graph.kernels:
            binary = compilation.binaries.get((place, kernel.name), Binary(*[None] * 5))
            kernels.append(
                {
                    "name": kernel.name,
                    "graph": place,
                    "anchor": f"{place}.{kernel.name}",
                    "language": kernel.language,
                    "file": f"{place}/{kernel.name}{ENDINGS[kernel.language]}",
                    "ptx": f"{place}/{kernel.name}.ptx" if binary.ptx else None,
                    "calls": sum(call.name == kernel.name for call in graph.calls),
                    **dataclasses.asdict(kernel.origins),
                    "registers": binary.registers,
                    "spills": binary.spills,
                    "shared_bytes": binary.shared_bytes,
                    "config": binary.config,
                }
            )
    breaks = [dataclasses.asdict(found) for found in compilation.breaks]
    return {**compilation.facts, "graphs": graphs, "graph_breaks": breaks, "kernels": kernels}


def write_folder(folder: Path, compilation: Compilation, index: dict[str, Any]) -> None:
    """Written beside `folder` and put in its place at the end."""
    partial = folder.with_name(f"{folder.name}.partial")
    reports.empty(partial)
    sources = {}
    for graph, text in compilation.graphs:
        place = partial / label(graph)
        place.mkdir()
        write_text(place / "output_code.py", text)
        for kernel in graph.kernels:
            sources[f"{label(graph)}.{kernel.name}"] = kernel.source
            write_text(place / f"{kernel.name}{ENDINGS[kernel.language]}", kernel.source)
            binary = compilation.binaries.get((label(graph), kernel.name))
            if binary and binary.ptx:
                write_text(place / f"{kernel.name}.ptx", binary.ptx)
    write_text(partial / "index.json", json.dumps(index, indent=1) + "\n")
    write_text(partial / "index.html", compiled_page.page(index, sources))
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(partial, folder)
