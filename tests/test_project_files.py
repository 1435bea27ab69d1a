"""Workflows, container and the files beside them: they agree with the project, and lint clean.

actionlint, zizmor and hadolint run where they are installed; the workflow tests runs them always.
"""

import json
import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from profiling.__main__ import VERBS
from tests.paths import PROJECT
from tests.soak.__main__ import SOAK

FOLDER = PROJECT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in FOLDER.iterdir()}
JOBS = {
    f"{name}.{job}": said for name, flow in WORKFLOWS.items() for job, said in flow["jobs"].items()
}
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
PINNED = re.compile(
    r"[\w-]+/[\w-]+@(v\d+|release/v\d+|[0-9a-f]{40})|\./\.github/workflows/\w+\.yml"
)
WRITE = {
    "docs.deploy": {"pages", "id-token"},
    "release.publish": {"id-token"},
}  # what jobs may write


def steps(job: str) -> list[dict]:
    return JOBS[job]["steps"]


@pytest.mark.parametrize(
    "command",
    [["actionlint"], ["zizmor", "--offline", ".github"], ["hadolint", "Dockerfile"]],
    ids=lambda c: c[0],
)
def test_linters_find_nothing(command):
    if not shutil.which(command[0]):
        pytest.skip(f"needs {command[0]}")
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_limited_in_time_and_rights_and_its_actions_are_pinned(name):
    job, flow = JOBS[name], WORKFLOWS[name.partition(".")[0]]
    assert "concurrency" in flow and "permissions" in flow
    assert set(flow["permissions"].values()) <= {"read"}
    granted = job.get("permissions", flow["permissions"])
    assert {of for of, right in granted.items() if right == "write"} == WRITE.get(name, set())
    assert "uses" in job or job["timeout-minutes"] <= 180
    used = [step["uses"] for step in job.get("steps", [job]) if "uses" in step]
    assert all(PINNED.fullmatch(action) for action in used), used
    assert "secrets." not in str(job)


def test_the_tests_are_those_of_ci_on_each_python():
    least, beyond = re.findall(r"3\.(\d+)", PYPROJECT["project"]["requires-python"])
    versions = [f"3.{minor}" for minor in range(int(least), int(beyond))]
    assert JOBS["tests.tests"]["strategy"]["matrix"]["python"] == versions
    assert steps("tests.tests")[-1] == {"run": "bash .ci/run"}


def test_a_release_needs_the_tests_and_is_published_without_a_token():
    publish = JOBS["release.publish"]
    assert set(publish["needs"]) == {"tests", "build"}
    assert publish["environment"]["name"] == "pypi"
    assert "password" not in str(publish)
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true


def test_the_site_is_built_in_strict_mode():
    assert {"run": "python -m mkdocs build --strict"} in steps("docs.build")


def test_all_randomised_tests_run_every_week():
    trials = JOBS["soak.soak"]["strategy"]["matrix"]["trials"]
    assert trials == [f"{name} {each.keys}" for name, each in SOAK.programs.items()]


def test_the_container_installs_extras_and_copies_files_that_exist():
    text = (PROJECT / "Dockerfile").read_text("utf-8")
    assert re.findall(r"^USER (.*)$", text, re.M)[-1] == "1000"
    ignored = (PROJECT / ".dockerignore").read_text("utf-8").splitlines()
    for pattern in [line[1:] for line in ignored if line.startswith("!")]:
        assert list(PROJECT.glob(pattern)), pattern
    lines = (PROJECT / ".devcontainer" / "devcontainer.json").read_text("utf-8").splitlines()
    said = json.loads("\n".join(line for line in lines if not line.strip().startswith("//")))
    assert f"AS {said['build']['target']}\n" in text


def test_the_hooks_before_a_commit_are_the_checks_of_ci():
    hooks = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text("utf-8"))
    entries = [hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"]]
    checks = re.findall(r"^\.venv/bin/((?:ruff|mypy).*)$", (PROJECT / ".ci/run").read_text(), re.M)
    wanted = [check.removesuffix(" .") for check in checks]
    assert [entry.replace(" --force-exclude", "") for entry in entries] == wanted


@pytest.mark.parametrize("name", ["SECURITY.md", "AGENTS.md", "CODE_OF_CONDUCT.md"])
def test_a_policy_names_what_exists(name):
    text = (PROJECT / name).read_text("utf-8")
    assert set(re.findall(r"python -m profiling (\w+)", text)) <= VERBS.keys()
    trials = re.findall(r"`(?:python -m tests\.soak )?(\w+)`", text)
    if name == "SECURITY.md":
        assert set(SOAK.programs) & set(trials) == {
            *("fuzz", "damaged_captures", "damaged_checkpoints", "inputs", "wrong_inputs")
        }


def test_no_package_is_committed():
    listed = ["git", "ls-files", "*.whl", "*.tar.gz", "*.zip"]
    assert not subprocess.check_output(listed, cwd=PROJECT, text=True)
