"""docs/report-schema.md: it names every field of the records that become JSON, and no other."""

import re

import msgspec
import pytest

from profiling.shared.causes import CAUSES, VERDICT
from tests.helpers.hooks import load_hook
from tests.paths import PROJECT

DOCUMENT = PROJECT / "docs" / "report-schema.md"
RECORDS = load_hook("reference").RECORDS
TOKEN = re.compile(r'"(\w+)"|([{}\[\]:,])|(\w+)')
REMARK = re.compile(r'\s{3,}(?![\s"{\[]).*$', re.M)  # behind spaces, or a line of its own
Shape = dict[str, "Shape | None"]  # name -> what is inside; None: no object, or {...}


def shape_of(verb: str) -> Shape:
    """The first block of the verb's section, read."""
    section = rf"^## `python -m profiling {verb} .*?```\n(.*?)```"
    block = re.search(section, DOCUMENT.read_text("utf-8"), re.M | re.S)
    assert block, verb
    tokens = TOKEN.findall(REMARK.sub("", block[1]))[::-1]
    assert tokens.pop()[1] == "{"
    found = read_object(tokens)
    assert not tokens
    return found


def read_object(tokens: list[tuple[str, str, str]]) -> Shape:
    """Read from behind its { to behind its }. A word for any key is read as that word."""
    found: Shape = {}
    while (token := tokens.pop())[1] != "}":
        if token[0] or token[2]:
            assert token[0] not in found, f"{token[0]}: twice"
            found[token[0] or token[2]] = read_value(tokens) if tokens[-1][1] == ":" else None
    return found


def read_value(tokens: list[tuple[str, str, str]]) -> Shape | None:
    """Read a value up to the , or } behind it."""
    found, depth = None, 0
    while depth or tokens[-1][1] not in (",", "}"):
        mark = tokens.pop()[1]
        depth += (mark == "[") - (mark == "]")
        if mark == "{":
            found = read_object(tokens) or None
    return found


def inside(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Strip a type of null, lists, and the keys of mappings."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return inside(next(t for t in kind.types if not isinstance(t, msgspec.inspect.NoneType)))
    if isinstance(kind, msgspec.inspect.ListType):
        return inside(kind.item_type)
    return kind


def differences(
    kind: msgspec.inspect.Type, shape: Shape | None, place: str, told: dict[type, bool]
) -> list[str]:
    """`told`: whether a record was described, of those that are mentioned."""
    kind = inside(kind)
    if isinstance(kind, msgspec.inspect.DictType):
        below = next(iter(shape.values())) if shape else None
        return differences(kind.value_type, below, f"{place}.*", told)
    if not isinstance(kind, msgspec.inspect.DataclassType | msgspec.inspect.StructType):
        return [f"{place}: is no object"] if shape else []
    told[kind.cls] = told.get(kind.cls, False) or shape is not None
    if shape is None:
        return []
    fields = {field.encode_name: field.type for field in kind.fields}
    found = [f"{place}.{name}: on one side only" for name in fields.keys() ^ shape.keys()]
    for name in fields.keys() & shape.keys():
        found += differences(fields[name], shape[name], f"{place}.{name}", told)
    return found


def test_each_field_is_in_the_document_and_nothing_else():
    told: dict[type, bool] = {}
    found = []
    for verb, record in RECORDS.items():
        found += differences(msgspec.inspect.type_info(record), shape_of(verb), verb, told)
    assert found == []
    assert [kind.__name__ for kind, described in told.items() if not described] == []


def test_each_cause_and_verdict_is_in_the_document():
    idle = shape_of("report")["idle"]
    assert idle and tuple(idle["by_cause"] or ()) == CAUSES
    text = DOCUMENT.read_text("utf-8")
    listed = text.partition('"bottleneck": {"verdict": ')[2].partition('"evidence"')[0]
    assert set(re.findall(r'"(\w+)"', listed)) == set(VERDICT)


@pytest.mark.parametrize(
    ("without", "told"),
    [
        (' "med_ns",', "med_ns"),
        ('"p95", ', "p95"),
        ('"class", ', "class"),
        ('"reasons"', "reasons"),
    ],
)
def test_a_field_that_the_document_lacks_is_found(monkeypatch, tmp_path, without, told):
    shortened = tmp_path / "schema.md"
    shortened.write_text(DOCUMENT.read_text("utf-8").replace(without, ""), encoding="utf-8")
    monkeypatch.setattr(f"{__name__}.DOCUMENT", shortened)
    found = [
        line
        for verb, record in RECORDS.items()
        for line in differences(msgspec.inspect.type_info(record), shape_of(verb), verb, {})
    ]
    assert any(told in line for line in found)
