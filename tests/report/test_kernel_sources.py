"""Links from a report's kernels to the sources that `compiled` saved beside the capture."""

import json
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from profiling.lab.compiled import write_folder
from profiling.report.single.kernel_sources import source_links
from profiling.verbs import report as command
from tests.helpers.captures import compilation
from tests.paths import CAPTURES


@pytest.fixture
def out_dir(tmp_path):
    """A run's folder with a capture and the index of the very graphs that it ran."""
    folder = tmp_path / "out dir"
    (folder / "profile").mkdir(parents=True)
    shutil.copy(CAPTURES / "flash_compile.sqlite.gz", folder / "profile" / "nsys.sqlite.gz")
    write_folder(folder / "compiled", compilation())
    return folder


def kernels_of(out_dir):
    return json.loads((out_dir / "compiled" / "index.json").read_text())["kernels"]


def put_kernels(out_dir, kernels):
    (out_dir / "compiled" / "index.json").write_text(json.dumps({"kernels": kernels}))


def addresses(page: Path) -> list[str]:
    return re.findall(r'<a href="([^"#][^"]*)">[^<]*</a>', page.read_text("utf-8"))


@pytest.mark.parametrize("place", ["out dir/profile/report.html", "report.html"])
def test_every_kernel_of_inductor_leads_to_its_source(out_dir, tmp_path, place):
    page = tmp_path / place
    command.main([str(out_dir), "--html", str(page)])
    found = [unescape(address).partition("#") for address in addresses(page)]
    targets = {(page.parent / unquote(file)).resolve() for file, _, _ in found}
    assert targets == {out_dir.resolve() / "compiled" / "index.html"}
    sources = (out_dir / "compiled" / "index.html").read_text("utf-8")
    anchors = [anchor for _, _, anchor in found]
    assert all(f'id="{anchor}"' in sources for anchor in anchors)
    assert sorted(anchors) == sorted(kernel["anchor"] for kernel in kernels_of(out_dir))
    assert "links to its source" in page.read_text("utf-8")


def test_a_name_that_both_graphs_have_gets_both_links(out_dir, tmp_path):
    capture = out_dir / "profile" / "nsys.sqlite.gz"
    put_kernels(
        out_dir, [{"name": "k", "anchor": f"0_{part}.k"} for part in ("forward", "backward")]
    )
    assert source_links(capture, out_dir / "profile" / "r.html") == {
        "k": [
            ("0_forward", "../compiled/index.html#0_forward.k"),
            ("0_backward", "../compiled/index.html#0_backward.k"),
        ]
    }
    (address,) = {link.split("#")[0] for _, link in source_links(capture, tmp_path / "r.html")["k"]}
    assert address == "out%20dir/compiled/index.html"


def test_without_compiled_or_elsewhere_there_are_no_links(out_dir, tmp_path):
    alone = shutil.copy(out_dir / "profile" / "nsys.sqlite.gz", tmp_path / "nsys.sqlite.gz")
    assert source_links(Path(alone), tmp_path / "r.html") == {}
    (out_dir / "compiled" / "index.html").unlink()
    assert source_links(out_dir / "profile" / "nsys.sqlite.gz", tmp_path / "r.html") == {}


def test_entries_that_the_verb_would_not_have_written_are_left_out(out_dir, tmp_path):
    name = kernels_of(out_dir)[0]["name"]
    bad = [
        '0"><script>alert(1)</script>',
        "javascript:alert(1)",
        "",
        "no_dot",
        "a.b c",
        7,
        None,
        ["a.b"],
    ]
    put_kernels(
        out_dir,
        [
            *({"name": name, "anchor": anchor} for anchor in bad),
            {"name": ["x"], "anchor": "a.b"},
            {"anchor": "a.b"},
            "text",
            None,
            {"name": "<script>alert(2)</script>", "anchor": "a.b"},
        ],
    )
    page = tmp_path / "r.html"
    command.main([str(out_dir), "--html", str(page)])
    assert addresses(page) == [] and "<script>alert" not in page.read_text("utf-8")


DEEP = "[" * 200_000
BAD = ["{", "[]", "{}", '{"kernels": 3}', DEEP, f'{{"graphs": {DEEP}', "\udcff"]


@pytest.mark.parametrize("content", BAD)
def test_a_damaged_index_costs_the_links_alone(out_dir, tmp_path, capsys, content):
    (out_dir / "compiled" / "index.json").write_bytes(content.encode(errors="surrogateescape"))
    page = tmp_path / "r.html"
    assert command.main([str(out_dir), "--html", str(page)]) == 0
    assert addresses(page) == []
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "do not link" in line]
    assert "index.json: " in said
