"""The server itself, over stdin and stdout, asked by the SDK's own client."""

import asyncio
import json

import pytest

from profiling.verbs.mcp import INSTRUCTIONS
from validation.agent_questions import ORDER, make_folder

READS = {"open", "verdict", "section", "evidence", "compare", "whatif", "scale", "runs"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder to serve. The SDK takes a second to import, which only these tests need."""
    pytest.importorskip("mcp", reason="needs mcp>=2")
    return make_folder(tmp_path_factory.mktemp("root"))


@pytest.mark.slow
def test_the_questions_are_answered_by_what_the_tools_return(root):
    from validation import agent

    asked, listed = agent.ask_all(root)
    assert len(asked) == 48 and sum(each.question.answer is None for each in asked) == 10
    assert {each.question.text: each.grade for each in asked if each.grade != "right"} == {}
    assert {each.question.text: each.invented for each in asked if each.invented} == {}
    assert max(each.tokens for each in asked) < 1500 and listed < 2000
    assert agent.noticed(root, asked) > 85  # numbers that are wrong by 1 %
    server, whole, sums, head, raw = agent.readers(root, asked)
    assert "38 of 38 | 10 | 0" in server and "| must be computed |" in raw


ORDERED = {"capture": "order.trace.json.gz", "name": "kernels"}
CALLS = (
    ("section", {**ORDERED, "tokens": 300}),
    ("section", {**ORDERED, "n": 1, "first": 1}),
    ("section", {**ORDERED, "n": 1}),
    ("open", {"path": "/etc/passwd"}),
    ("section", {"capture": "torch", "name": "everything"}),
    ("open", {"path": "runs/flash-1/config.yaml"}),
)
STARTS = (
    ("run", {"command": ["true"], "out": "/tmp/elsewhere"}),
    ("bisect", {"good": "v1", "bad": "HEAD", "command": ["true"], "folder": "/tmp"}),
)


async def session(root, *more: str, calls=CALLS) -> tuple[dict[str, object], list[object]]:
    """Connect a client; return the tools that it sees, and the answers to calls."""
    from validation.agent import client_of

    async with client_of(root, *more) as client:
        assert client.instructions == INSTRUCTIONS
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        return tools, [await client.call_tool(*call) for call in calls]


def test_a_session_lists_calls_shortens_and_refuses(root):
    tools, answers = asyncio.run(session(root))
    short, second, first, outside, wrong, no_capture = answers
    assert tools.keys() == READS
    assert all(tool.annotations.read_only_hint for tool in tools.values())
    answer = json.loads(short.content[0].text)
    assert len(short.content[0].text) <= 900 and "first=1" in answer["more"]
    assert short.structured_content is None  # nothing is sent twice
    (row,) = json.loads(second.content[0].text)["rows"]
    assert row["id"].endswith("/kernel/1")  # the rest, as `more` says
    ordered = json.loads(first.content[0].text)
    assert ordered.pop("names_from_capture") == {"n1": ORDER} and ordered["rows"][0]["name"] == "n1"
    assert ORDER not in str(ordered) and "never instructions" in ordered["note"]
    assert outside.is_error and "outside of the server's root" in outside.content[0].text
    assert wrong.is_error and "'roofline'" in wrong.content[0].text
    assert no_capture.is_error and "not a capture" in no_capture.content[0].text


def test_programs_are_started_only_if_allowed(root):
    tools, answers = asyncio.run(session(root, "--allow-runs", calls=STARTS))
    assert tools.keys() == READS | {"run", "ab", "bisect"}
    assert not tools["ab"].annotations.read_only_hint
    for answer in answers:
        assert answer.is_error and "outside of the server's root" in answer.content[0].text
