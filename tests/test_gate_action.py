"""The GitHub Action in .github/actions/gate: its scripts, without a runner."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from tests.paths import PROJECT

ACTION = PROJECT / ".github" / "actions" / "gate"
FILE = yaml.safe_load((ACTION / "action.yml").read_text("utf-8"))
STEP = {"ratio": 1.031, "ci95": [1.02, 1.042], "baseline_values": [1] * 6}
STEP |= {"candidate_values": [1] * 6}


def test_inputs_reach_scripts_by_variables_alone():
    """Text of a pull request within a script would be run."""
    for step in FILE["runs"]["steps"]:
        assert "${{" not in step["run"] and step["shell"] == "bash"
    used = set(re.findall(r"inputs\.([\w-]+)", (ACTION / "action.yml").read_text("utf-8")))
    assert used == set(FILE["inputs"])
    assert all(
        each["description"] for each in [*FILE["inputs"].values(), *FILE["outputs"].values()]
    )


@pytest.fixture
def github():
    """A server with the comments of a pull request: {id: body}; `refuses` makes it answer 403."""

    class Handler(BaseHTTPRequestHandler):
        comments: dict[int, str] = {number: f"comment {number}" for number in range(130)}
        refuses = False
        asked: list[str] = []

        def answer(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
            assert self.headers["Authorization"] == "Bearer T"
            self.asked.append(f"{self.command} {self.path}")
            said: list | dict = {}
            if self.command == "GET":
                page = int(re.search(r"[&?]page=(\d+)", self.path)[1])
                every = [{"id": n, "body": body} for n, body in self.comments.items()]
                said = every[100 * (page - 1) : 100 * page]
            elif not self.refuses:
                number = int(self.path.rpartition("/")[2]) if self.command == "PATCH" else 500
                self.comments[number] = content["body"]
            self.send_response(403 if self.refuses else 200)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        do_GET = do_POST = do_PATCH = answer

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Handler.address = f"http://127.0.0.1:{server.server_port}"
    yield Handler
    server.shutdown()


def write_comment(tmp_path: Path, github, exit_code: str, token: str = "T") -> str:
    """Runs comment.py over the files in tmp_path; its output."""
    environ = {"NAME": "step time", "TOKEN": token, "NUMBER": "7", "EXIT_CODE": exit_code}
    environ |= {"FOLDER": str(tmp_path), "GITHUB_API_URL": github.address}
    environ |= {"GITHUB_REPOSITORY": "me/mine", "GITHUB_STEP_SUMMARY": str(tmp_path / "page.md")}
    done = subprocess.run(
        [sys.executable, ACTION / "comment.py"],
        env=os.environ | environ | {"no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_comment_is_written_and_then_edited(github, tmp_path):
    (tmp_path / "result.json").write_text(json.dumps({"comparisons": [{"step_ms": STEP}]}))
    (tmp_path / "report.md").write_text(
        "## x\n\n**this folder is 3.1 % slower than abc**\n" + "|" * 70_000
    )
    write_comment(tmp_path, github, "1")
    body = github.comments[500]
    assert body.startswith("<!-- profiling-gate: step time -->\n### step time: regression\n")
    assert (
        "**this folder is 3.1 % slower than abc**\n\nStep time against the merge base: 1.031, "
        in body
    )
    assert "95 % interval 1.020 to 1.042, from 6 and 6 processes" in body and len(body) < 65_536
    assert (tmp_path / "page.md").read_text() == body + "\n"
    write_comment(tmp_path, github, "3")
    assert "### step time: no answer" in github.comments[500] and len(github.comments) == 131
    assert github.asked[-1] == "PATCH /repos/me/mine/issues/comments/500"


def test_what_did_not_run_is_said_and_a_token_that_may_not_write_costs_the_comment(
    github, tmp_path
):
    (tmp_path / "errors.txt").write_text("profiling ab: error: A ended with exit code 1 ```\n")
    github.refuses = True
    assert "::warning::the comment was not written: HTTP Error 403" in write_comment(
        tmp_path, github, "2"
    )
    page = (tmp_path / "page.md").read_text()
    assert (
        "### step time: did not run" in page and "error: A ended with exit code 1 \n```\n" in page
    )
    assert write_comment(tmp_path, github, "2", token="") == ""


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_the_gate_compares_with_the_merge_base_and_keeps_the_exit_code(tmp_path):
    repository, programs = tmp_path / "repository", tmp_path / "profiling-gate-venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "profiling-nanogpt").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >args; exit 3\n')
    (programs / "profiling-nanogpt").chmod(0o755)
    git = ["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", "-b", "main", repository], check=True)
    for branch in ("main", "main", "head"):
        subprocess.run([*git, "checkout", "-q", "-B", branch], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", branch], check=True)
    environ = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "output")}
    environ |= {"COMMAND": "A=1 python 'my train.py'", "BASE": "main", "PERCENT": "2", "STEPS": ""}
    environ |= {"REPEATS": "6", "WARM_UP": "20", "CAPTURE": "true"}

    def run(**more: str) -> str:
        command = ["bash", ACTION / "gate.sh"]
        subprocess.run(command, cwd=repository, env=os.environ | environ | more, check=True)
        return (tmp_path / "output").read_text()

    assert run().endswith("\nexit-code=3\n")
    words = (repository / "args").read_text().splitlines()
    base = subprocess.check_output([*git, "rev-parse", "main"], text=True).strip()
    assert words[:3] == ["ab", "--against", f"commit:{base}"] and "--steps" not in words
    assert words[-4:] == ["--", "sh", "-c", "A=1 python 'my train.py'"]
    assert run(BASE="nowhere").endswith("\nexit-code=2\n")

    new = {"BASE": "0" * 40, "DEFAULT_BRANCH": "main"}  # of the first push of a branch
    assert run(**new).endswith("\nexit-code=2\n")
    subprocess.run([*git, "update-ref", "refs/remotes/origin/main", "main"], check=True)
    (repository / "args").unlink()
    assert run(**new).endswith("\nexit-code=3\n")
    assert f"commit:{base}" in (repository / "args").read_text()
    subprocess.run([*git, "reset", "-q", "--hard", "main"], check=True)
    assert run(**new).endswith("\nexit-code=0\n")
    said = "".join(file.read_text() for file in tmp_path.glob("*/errors.txt"))
    assert said.count("nothing to compare") == 1
