"""JSON of every fixture, unchanged: tests/goldens.py says how to change it on purpose."""

import json
from functools import cache

import pytest

from tests.goldens import VERBS, make
from tests.paths import GOLDENS

FROZEN = {path.stem: path for path in sorted(GOLDENS.glob("*.json"))}


QUICK = "report"  # of the verbs
CASES = [
    pytest.param(name, marks=() if name.startswith(QUICK) else pytest.mark.slow) for name in FROZEN
]

made_by = cache(make)  # verb -> content by name


def differences(one: object, other: object, place: str = "") -> list[str]:
    """Places where the two differ; numbers may in the last digits: other machines round anew."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys([*one, *other])
        lacking = [
            f"{place}.{key}: only on one side" for key in keys if (key in one) != (key in other)
        ]
        both = [key for key in keys if key in one and key in other]
        return lacking + [
            line for key in both for line in differences(one[key], other[key], f"{place}.{key}")
        ]
    if isinstance(one, list) and isinstance(other, list):
        pairs = enumerate(zip(one, other, strict=False))
        within = [line for i, pair in pairs for line in differences(*pair, f"{place}[{i}]")]
        if len(one) != len(other):
            within.append(f"{place}: {len(one)} items were, {len(other)} are")
        return within
    if type(one) is type(other) and (one == other or is_rounded_anew(one, other)):
        return []
    return [f"{place}: {one!r} was, {other!r} is"]


def is_rounded_anew(one: object, other: object) -> bool:
    """Whether both are numbers and differ by no more than a billionth."""
    return isinstance(one, int | float) and one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize(
    "one, other, said",
    [
        ({"a": ["x", "y"]}, {"a": ["x", "z"]}, [".a[1]: 'y' was, 'z' is"]),
        ([{"a": 1}], [{"a": 1}, {"a": 2}], [": 1 items were, 2 are"]),
        ({"a": 1.0, "b": 2}, {"a": 1.0 + 1e-12, "b": None}, [".b: 2 was, None is"]),
        ({"a": "1"}, {"b": "1"}, [".a: only on one side", ".b: only on one side"]),
        ({"a": 1.0}, {"a": 1.0 + 1e-6}, [".a: 1.0 was, 1.000001 is"]),
    ],
)
def test_a_difference_is_named_by_its_place(one, other, said):
    assert differences(one, other) == said


@pytest.mark.slow
def test_every_fixture_is_frozen():
    made = {name: content for verb in VERBS for name, content in made_by(verb).items()}
    assert sorted(made) == sorted(FROZEN) and len(made) == 13
    assert len(made["report-outlines"]) == 5


@pytest.mark.parametrize("name", CASES)
def test_the_json_is_what_it_was(name):
    frozen = json.loads(FROZEN[name].read_text(encoding="utf-8"))
    assert differences(frozen, made_by(name.partition("-")[0])[name]) == []
