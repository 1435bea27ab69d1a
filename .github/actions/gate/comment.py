"""Makes the comment of a gate from the files of `ab`, for the job's page and the pull request.

A later run of the same gate edits its comment. A token that may not write, as of a pull request
from a fork, costs the comment alone.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

LONGEST = 60_000  # characters; GitHub takes 65,536
ANSWERS = {"0": "passed", "1": "regression", "3": "no answer"}
PAGE = 100  # comments


def main() -> None:
    body = comment(os.environ["NAME"], os.environ["EXIT_CODE"], Path(os.environ["FOLDER"]))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write(body + "\n")
    if not os.environ["TOKEN"] or not os.environ["NUMBER"]:
        return
    try:
        post(body, marker(os.environ["NAME"]))
    except urllib.error.URLError as error:
        print(f"::warning::the comment was not written: {error}")


def marker(name: str) -> str:
    """The first line of the comment, by which a later run finds it."""
    return f"<!-- profiling-gate: {name.replace('--', '')} -->"


def comment(name: str, exit_code: str, folder: Path) -> str:
    """Markdown: the answer with its interval, and behind it the whole report."""
    lines = [marker(name), f"### {name}: {ANSWERS.get(exit_code, 'did not run')}", ""]
    result, report, errors = (folder / each for each in ("result.json", "report.md", "errors.txt"))
    if not result.exists():
        said = errors.read_text("utf-8").strip() if errors.exists() else ""
        return "\n".join([*lines, "```", said.replace("```", "")[-2000:] or "see the log", "```"])
    (found,) = json.loads(result.read_text("utf-8"))["comparisons"]
    step = found["step_ms"]
    low, high = step["ci95"]
    processes = len(step["baseline_values"]), len(step["candidate_values"])
    report_lines = report.read_text("utf-8").splitlines()
    sentence = next(line for line in report_lines if line.startswith("**"))
    interval = (
        f"Step time against the merge base: {step['ratio']:.3f}, 95 % interval {low:.3f} to "
        f"{high:.3f}, from {processes[0]} and {processes[1]} processes in turns on one runner."
    )
    whole = "\n".join(report_lines)[:LONGEST]
    details = ["<details><summary>the whole report</summary>", "", whole, "", "</details>"]
    return "\n".join([*lines, sentence, "", interval, "", *details])


def post(body: str, mark: str) -> None:
    """Write the comment, or edit the one that begins with `mark`. Raises URLError."""
    repository = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}"
    on_pull = f"{repository}/issues/{os.environ['NUMBER']}/comments"
    for each in comments(on_pull):
        if each["body"].startswith(mark):
            call("PATCH", f"{repository}/issues/comments/{each['id']}", {"body": body})
            return
    call("POST", on_pull, {"body": body})


def comments(on_pull: str) -> Iterator[dict]:
    page = 1
    while found := call("GET", f"{on_pull}?per_page={PAGE}&page={page}"):
        yield from found
        if len(found) < PAGE:
            return
        page += 1


def call(method: str, address: str, content: dict | None = None) -> list:
    headers = {
        "Authorization": f"Bearer {os.environ['TOKEN']}",
        "Accept": "application/vnd.github+json",
        "Content-Type": "application/json",
    }
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(address, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
