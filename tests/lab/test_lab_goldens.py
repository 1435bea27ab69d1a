"""JSON of the lab, frozen in tests/goldens/lab: for recordings, and by its fields."""

import json

import pytest
import torch

from profiling.lab import device, square
from profiling.shared.json_records import to_json
from profiling.tools.torch_compile import Binary, graph_breaks
from profiling.verbs import attention, ncu
from profiling.verbs import device as device_command
from profiling.verbs import square as square_command
from tests.helpers.captures import compilation
from tests.paths import CAPTURES, GOLDENS

FROZEN = GOLDENS / "lab"
FUSED = "triton_per_fused__to_copy__unsafe_view_add_native_dropout_native_layer_norm_3"


def frozen(name: str) -> object:
    return json.loads((FROZEN / f"{name}.json").read_text("utf-8"))


def fields(value: object) -> object:
    """The names and types of what a JSON holds; of `rows` every kind once, else of the first."""
    if isinstance(value, dict):
        made = {key: fields(item) for key, item in value.items()}
        if "rows" in value:
            kinds = [fields(row) for row in value["rows"]]
            made["rows"] = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
        return made
    if isinstance(value, list):
        return [fields(item) for item in value[:1]]
    return type(value).__name__


@pytest.mark.parametrize("page", ("ncu_flash.details", "ncu_triton.details", "ncu_elementwise.raw"))
def test_kernels_under_ncu(page, tmp_path):
    ncu.main([str(CAPTURES / f"{page}.csv"), "--json", str(tmp_path / "k.json")])
    assert json.loads((tmp_path / "k.json").read_text("utf-8")) == frozen(page)


def test_the_index_of_what_was_compiled():
    binaries = {("0_forward", FUSED): Binary(128, 3, 2048, "XBLOCK: 2", "// ptx")}
    message = "Graph break in user code at /a/b.py:7\nReason: <print>\nUser code traceback:\n x"
    made = compilation(breaks=graph_breaks([message]), binaries=binaries)
    assert json.loads(to_json(made.index)) == frozen("compiled_index")


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the fields of a CPU are frozen")
def test_fields_of_what_is_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(square, "VARIANTS", ("a * a", "CUDA C++"))
    monkeypatch.setattr(device, "COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(device, "MATRIX", {"cpu": 64})
    shared, file = ["--device", "cpu", "--max-s", "0.01"], tmp_path / "made.json"
    small = "--heads 2 --head-dim 16 --tokens 64 --seq 16 --dtype float32 --backends slow,cudnn"
    verbs = {"attention": (attention, small.split()), "square": (square_command, ["--mib", "1"])}
    for name, (verb, words) in verbs.items():
        assert verb.main([*shared, *words, "--json", str(file)]) == 0
        assert fields(json.loads(file.read_text("utf-8"))) == frozen("fields")[name]
    capsys.readouterr()
    device_command.main([*shared, "--json"])
    assert fields(json.loads(capsys.readouterr().out)) == frozen("fields")["device"]
