"""Compiles the model of a configuration from scratch and shows what torch.compile generated.

{flags}

FILE and KEY=VALUE are as for train.py; compile=true kernels=compiled are added.

The page shows the graphs, where and why they break, and each generated kernel with its source and
its fused operators; on a GPU also registers, spills, shared memory and PTX. In an HTML report of a
capture in out_dir/profile, kernels link to these sources (report --html).

examples
  python -m profiling compiled config/shakespeare_char.yaml attention=flash
  python -m profiling compiled config/shakespeare_char.yaml compile_scope=model
"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cli.files import make_folder
from cli.parser import Parser, flag
from profiling.lab.compiled import check_ours, compile_once, write_folder
from profiling.report.lab.compiled_document import compiled_document
from profiling.verbs.progress import progress_line
from profiling.verbs.results import check_outputs, output_flags, put, show

if TYPE_CHECKING:
    from configs.schema import Config


def main(argv: list[str]) -> int:
    """Compile, write and print; return the exit code.

    Raises ValueError for a mistake, and if the compiler does not work.
    """
    parser = Parser("compiled", __doc__, usage="%(prog)s [FLAGS] [FILE] [KEY=VALUE ...]")
    out = "for index.json, index.html and a file per graph and kernel (out_dir/compiled)"
    flag(parser, "--out FOLDER", out, Path)
    page, index = "write the page to this file too", "write the index to this file too"
    output_flags(parser, html=page, json=index)
    flags, words = parser.parse_known_args(argv)
    config = compose(words)
    folder = flags.out or Path(config.out_dir) / "compiled"
    check_ours(folder)
    check_outputs(flags)
    make_folder(folder.parent)
    with (
        tempfile.TemporaryDirectory(prefix="inductor-") as cache,
        progress_line("compiling; on a CPU this takes minutes"),
    ):
        made = compile_once(config, Path(cache).resolve())
    write_folder(folder, made)
    for file, name in ((flags.html, "index.html"), (flags.json, "index.json")):
        if file:
            put(file, (folder / name).read_text(encoding="utf-8"))
    show(compiled_document(made.index, made.files))
    print(f"page    {folder / 'index.html'}\nindex   {folder / 'index.json'}")
    return 0


def compose(words: list[str]) -> "Config":
    """The configuration to compile. Raises ValueError if it says compile=false."""
    from configs.command_line import compose_one  # here: --help needs no Hydra

    config = compose_one([*words, "wandb.mode=disabled"], "compile=true", "kernels=compiled")
    if not config.compile:
        raise ValueError("compile=false: nothing would be compiled; leave this key out")
    return config
