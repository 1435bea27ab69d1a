"""python -m profiling compiled: for code recorded on an H200, and compiled here for a CPU."""

import gzip
import io
import json
import shutil
import sqlite3
from dataclasses import fields
from types import SimpleNamespace

import pytest
from rich.console import Console

from profiling.lab.compiled import write_folder
from profiling.report.lab.compiled_document import compiled_document, headline, short_kernel
from profiling.report.renderers import terminal
from profiling.shared.json_records import to_json
from profiling.tools.torch_compile import (
    Binary,
    KernelEntry,
    binary_of,
    graph_breaks,
    is_output_code,
    parse_graph,
)
from profiling.verbs import compiled
from tests.helpers.captures import compilation, inductor_code
from tests.helpers.forked import Forked
from tests.paths import CAPTURES

FUSED = "triton_per_fused__to_copy__unsafe_view_add_native_dropout_native_layer_norm_3"


@pytest.fixture(scope="module")
def forward():
    return parse_graph(inductor_code("forward"))


@pytest.fixture(scope="module")
def backward():
    return parse_graph(inductor_code("backward"))


def test_triton_kernels_with_what_is_fused_in_them(forward):
    assert (forward.number, forward.part) == (0, "forward")
    assert [kernel.name for kernel in forward.kernels] == [
        "triton_per_fused__to_copy_native_layer_norm_0",
        "triton_poi_fused__to_copy_t_1",
        "triton_poi_fused__to_copy_t_2",
        FUSED,
        "triton_poi_fused__to_copy_t_4",
        "triton_poi_fused__unsafe_view_gelu_5",
        "triton_poi_fused__unsafe_view_add_native_dropout_6",
    ]
    (first, *_) = forward.kernels
    assert first.language == "triton"
    assert first.operators == ["aten.native_layer_norm", "aten._to_copy"]
    assert first.nodes == ["layer_norm", "linear"]
    assert f"def {first.name}(in_out_ptr0" in first.source and "@triton.jit" in first.source
    assert "async_compile" not in first.source


def test_the_calls_in_order_with_the_libraries_between(forward):
    names = [call.name for call in forward.calls]
    flash = "torch.ops.aten._scaled_dot_product_flash_attention"
    assert names.index("extern_kernels.mm") < names.index(flash) < names.index(FUSED)
    assert names.count("extern_kernels.mm") == 4  # c_attn, c_proj, c_fc, c_proj
    kernels = {kernel.name for kernel in forward.kernels}
    assert {call.name for call in forward.calls if not call.is_library} == kernels
    (attention,) = [call for call in forward.calls if call.name == flash]
    assert "aten._scaled_dot_product_flash_attention" in attention.operators


def test_a_kernel_called_twice_is_one_kernel(backward):
    assert backward.part == "backward"
    names = [call.name for call in backward.calls if not call.is_library]
    assert len(names) > len(set(names)) == len(backward.kernels) == 9
    assert sum(call.name == "extern_kernels.mm" for call in backward.calls) == 8


def test_the_spelling_of_older_versions():
    text = inductor_code("forward").replace("Topologically Sorted Source Nodes", "Source Nodes")
    assert parse_graph(text) == parse_graph(inductor_code("forward"))


def test_a_call_without_a_comment_has_unknown_origins():
    text = "# AOT ID: ['3_inference']\ndef call(args):\n    extern_kernels.mm(a, b, out=c)\n"
    graph = parse_graph(text)
    assert (graph.number, graph.part, graph.kernels) == (3, "inference", [])
    assert (graph.calls[0].operators, graph.calls[0].nodes) == (None, None)


def test_other_python_is_no_output_code():
    assert not is_output_code("import torch\n")
    with pytest.raises(ValueError, match="AOT ID"):
        parse_graph("import torch\n")


def test_registers_spills_and_ptx_of_the_chosen_variant(tmp_path):
    launcher = SimpleNamespace(  # as on an H200, with torch 2.11
        n_regs=128, n_spills=0, shared=2048, cache_hash="HPYX", config="XBLOCK: 2, num_warps: 1"
    )
    for folder, text in (("HPYX", "// chosen"), ("OTHER", "// not")):
        (tmp_path / "triton" / folder).mkdir(parents=True)
        (tmp_path / "triton" / folder / f"{FUSED}.ptx").write_text(text)
    found = binary_of(launcher, FUSED, tmp_path)
    assert found == Binary(128, 0, 2048, "XBLOCK: 2, num_warps: 1", "// chosen")
    assert binary_of(SimpleNamespace(), FUSED, tmp_path) == Binary(None, None, None, None, None)


def test_index_folder_and_page_of_the_recorded_graphs(tmp_path):
    binaries = {("0_forward", FUSED): Binary(128, 3, 2048, "XBLOCK: 2", "// ptx")}
    message = "Graph break in user code at /a/b.py:7\nReason: <print>\nUser code traceback:\n x"
    made = compilation(binaries=binaries, breaks=graph_breaks([message]))
    folder = tmp_path / "compiled"
    write_folder(folder, made)
    assert (folder / "index.json").read_text() == to_json(made.index)
    index = json.loads((folder / "index.json").read_text())
    by_name = {kernel["name"]: kernel for kernel in index["kernels"]}
    fused = by_name[FUSED]
    assert (fused["registers"], fused["spills"], fused["shared_bytes"]) == (128, 3, 2048)
    assert (folder / fused["file"]).read_text().startswith("import triton")
    assert (folder / fused["ptx"]).read_text() == "// ptx"
    gelu = by_name["triton_poi_fused__unsafe_view_gelu_5"]
    assert gelu["registers"] is None and gelu["ptx"] is None and gelu["calls"] == 1
    for kernel in index["kernels"]:
        assert (folder / kernel["file"]).is_file()
    page = (folder / "index.html").read_text()
    assert f'id="{fused["anchor"]}"' in page and "/a/b.py:7" in page
    assert "&lt;print&gt;" in page and "<print>" not in page
    assert headline(made.index) == ("2 graphs, 16 kernels written, 15 library calls, 1 graph break")
    write_folder(folder, made)  # replaces what is there
    assert not (tmp_path / "compiled.partial").exists()


def test_the_names_are_those_that_a_capture_shows(forward, backward, tmp_path):
    """Names are what links a kernel of a report to its source: six blocks run the same kernels."""
    path = tmp_path / "capture.sqlite"
    with gzip.open(CAPTURES / "flash_compile.sqlite.gz") as file:
        path.write_bytes(file.read())
    database = sqlite3.connect(path)
    shown = database.execute(
        "SELECT DISTINCT value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName"
    ).fetchall()
    database.close()
    triton = {name for (name,) in shown if name.startswith("triton")}
    assert triton == {kernel.name for kernel in [*forward.kernels, *backward.kernels]}


def test_breaks_are_counted_by_place_and_reason():
    new = (
        "Graph break in user code at /a/train.py:10\nGraph Break Reason: Encountered graph break "
        "when attempting to trace CALL:\n\nFailed to trace builtin operator\n  Explanation: no\n"
        "  Hint: Avoid it\nUser code traceback:\n  File x"
    )
    old = "Graph break in user code at /a/model.py:3\nReason: call_function print\nUser code tr"
    first, second, third = graph_breaks([new, old, new, "something else"])
    assert (first.file, first.line, first.count) == ("/a/train.py", 10, 2)
    assert first.reason.endswith("Failed to trace builtin operator Explanation: no")
    assert (second.file, second.line) == ("/a/model.py", 3)
    assert second.reason.startswith("call_function print")
    assert (third.file, third.line, third.reason) == (None, None, "something else")


BROKEN = """
import torch
from profiling.lab.compiled import collect_graph_breaks
from profiling.tools.torch_compile import graph_breaks

def f(x):
    y = x + 1
    print("the break")  # line 8
    if y.sum() > 0:
        y = y * 2
    return y

with collect_graph_breaks() as messages:
    torch.compile(f, backend="eager")(torch.ones(3))
for found in graph_breaks(messages):
    print(found.line, found.reason)
"""


@pytest.mark.slow
def test_real_breaks_are_heard_with_their_lines(tmp_path, start):
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    said = said_by(start([str(script)]))
    lines = [line for line in said.splitlines() if line != "the break"]
    assert [line.split()[0] for line in lines] == ["8", "9"]
    assert "print" in lines[0] and "branch" in lines[1].lower()


def said_by(process: Forked) -> str:
    """Output of a process that is to succeed."""
    said = process.communicate(timeout=170)[0]
    assert process.returncode == 0, said
    return said


# g++ takes half a second for each of 16 kernels, of which the verb reads the source alone
WITHOUT_GXX = """
from torch._inductor.async_compile import AsyncCompile
from profiling.__main__ import main

AsyncCompile.cpp_pybinding = lambda *_: lambda *_: None  # a kernel that writes nothing
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler")
def test_a_tiny_model_compiled_here(command, start, tmp_path):
    keys = dict(n_layer=1, block_size=8, batch_size=2, attention="flash")
    words = command(**keys, compile=True, compile_scope="block")[1:]
    index_file = tmp_path / "i.json"
    said = said_by(start(["-c", WITHOUT_GXX, "compiled", *words, "--json", str(index_file)]))
    folder = tmp_path / "out" / "compiled"
    index = json.loads(index_file.read_text())
    assert index == json.loads((folder / "index.json").read_text())
    # of the embedding, of a block, of the loss
    parts = [f"{number}_{part}" for number in range(3) for part in ("forward", "backward")]
    assert sorted(graph["name"] for graph in index["graphs"]) == sorted(parts)
    block = next(graph for graph in index["graphs"] if graph["name"] == "1_forward")
    assert index["graph_breaks"] == [] and index["device"] == "CPU"
    libraries = [call["name"] for call in block["calls"] if call["is_library"]]
    assert libraries.count("extern_kernels.mm") == 4
    assert any("flash_attention" in name for name in libraries)
    for kernel in index["kernels"]:
        assert kernel["name"].startswith("cpp_fused") and kernel["calls"] >= 1
        assert 'extern "C"' in (folder / kernel["file"]).read_text()
        assert kernel["registers"] is None and kernel["operators"] is None
    assert "6 graphs" in said and "0 graph breaks" in said
    page = (folder / "index.html").read_text()
    assert index["kernels"][0]["name"] in page and "None: each compiled part" in page


def test_mistakes_are_refused_before_compiling(tmp_path):
    with pytest.raises(ValueError, match="compile=false: nothing would be compiled"):
        compiled.main(["compile=false"])
    with pytest.raises(ValueError, match="one run at a time"):
        compiled.main(["-m", "seed=1,2"])
    with pytest.raises(ValueError, match="^--dry: no such flag; see python "):
        compiled.main(["--dry"])
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ValueError, match="contains no index.json of this verb"):
        compiled.main(["--out", str(tmp_path)])
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_a_line_for_each_kernel(width):
    made, out = compilation(), io.StringIO()
    terminal.show(compiled_document(made.index, made.files), Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width and "\x1b" not in "".join(lines)
    names = [line.split()[0] for line in lines if line.startswith(" triton")]
    assert len(names) == 16 and names[0] == "triton_per_…_0"
    assert any("0_backward" in line and "native_dropout_backward" in line for line in lines)
    assert "registers" not in out.getvalue()  # which a CPU has not


def test_a_name_is_short_without_its_operators():
    assert short(FUSED, ["aten.add", "aten.mul", "aten.add"]) == ("triton_per_…_3", ["add, mul"])
    assert short("my_kernel", None) == ("my_kernel", None)


def test_a_kernel_that_has_its_operators_in_its_name_alone_is_told_by_them():
    assert short("cpp_fused__to_copy_t_12", None) == ("cpp_…_12", ["to_copy_t"])


def short(name: str, operators: list[str] | None) -> tuple[str, list[str] | None]:
    """(name, operators) in the terminal."""
    facts = {field.name: None for field in fields(KernelEntry)}
    row = short_kernel(KernelEntry(**facts | {"name": name, "operators": operators}))
    return row.name, row.operators
