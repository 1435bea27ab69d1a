"""Skill, plugin and docs/agents.md: short, and true of the server."""

import json
import re
import shlex
import shutil
import tomllib
from importlib import import_module

import pytest
import yaml

from profiling.__main__ import VERBS
from profiling.verbs import mcp
from tests.paths import CAPTURES, PROJECT
from validation.agent_questions import SESSION, SLOW

PLUGIN = PROJECT / "profiling" / "agent" / "plugin"
SKILL = (PROJECT / "profiling" / "agent" / mcp.SKILL).read_text("utf-8")
DOCS = (PROJECT / "docs" / "agents.md").read_text("utf-8")
COMMAND = re.compile(r"""(?:python -m profiling|profiling-nanogpt) (\w+)([^`\n"]*)""")
COMMANDS = COMMAND.findall(SKILL + DOCS)


def test_the_skill_says_when_to_use_it_and_is_short():
    head = yaml.safe_load(SKILL.split("---\n")[1])
    assert head["name"] == "profiling-nanogpt" and "Use for" in head["description"]
    assert len(head["description"]) < 1024 and len(SKILL.splitlines()) < 40
    assert all(f"`{tool}`" in SKILL for tool in ("verdict", "section", "whatif", "compare"))
    assert {"verdict", "section", "evidence", "whatif", "compare"} <= set(dir(mcp.Tools))


@pytest.mark.parametrize(("verb", "words"), sorted(set(COMMANDS)))
def test_its_commands_parse(verb, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert verb in VERBS
    if verb in ("report", "compare", "whatif"):
        import_module(f"profiling.verbs.{verb}").parse(shlex.split(words))


def test_the_plugin_has_the_version_and_starts_the_server():
    said = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text("utf-8"))
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert said["version"] == project["version"] and said["name"] == project["name"]
    (server,) = json.loads((PLUGIN / ".mcp.json").read_text("utf-8"))["mcpServers"].values()
    assert server["command"] in project["scripts"] and server["args"][0] in VERBS


def test_the_skill_is_written_where_it_is_asked_for(tmp_path, capsys):
    assert mcp.main(["--skill", str(tmp_path / "skills")]) == 0
    written = tmp_path / "skills" / "profiling-nanogpt" / "SKILL.md"
    assert written.read_text("utf-8") == SKILL and str(written) in capsys.readouterr().out


def test_each_tool_is_in_the_table():
    table = set(re.findall(r"`(\w+)(?:\([^)]*\))?`", DOCS.partition("An answer is JSON")[0]))
    assert {"open", "verdict", "section", "evidence", "compare", "whatif", "scale"} <= table
    assert {"runs", "run", "ab", "bisect"} <= table


def test_the_recorded_session_is_what_the_tools_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(CAPTURES / SLOW, SLOW)
    tools, asked = mcp.Tools(), 0
    for tool, arguments in SESSION:
        assert f"> {tool} {json.dumps(arguments)}" in DOCS
        if arguments.get("capture") == SLOW:
            assert getattr(tools, tool)(**arguments) in DOCS
            asked += 1
    assert asked == 3
