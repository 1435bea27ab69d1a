"""The server of `python -m profiling mcp`, asked 48 questions by the MCP SDK's own client.

    python -m validation agent
    python -m validation agent session=true

No model is asked: counted is whether the answer is in what the tools returned, and in how many
tokens, of three characters each. Beside it stand readers without the server, of whole files: the
JSON of `report` or `compare`, the sums of `nsys stats`, and the captures themselves as text, their
first 8,000 tokens or all. A
number is invented if it is neither in that JSON nor in what the verb prints.
"""

import asyncio
import gzip
import io
import json
import pickle
import re
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import CallToolResult

from benchmarks.measuring import PROJECT, Keys, key
from profiling.agent.answer import CHARACTERS_PER_TOKEN, MOST_TOKENS, token_count
from validation.agent_questions import ID, QUESTIONS, SESSION, Call, Question, make_folder

ROUNDED = 5.1e-4  # an answer has four digits
SCALES = (1.0, 1e-3, 1e-6)  # ns as us and ms
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
NOT_SAID = ("next", "more", "evidence", "names_from_capture", "note")
SUMS = ("kernels", "api", "memops")


@dataclass
class AgentConfig(Keys):
    session: bool = key(False, "print a client's session instead: calls, and what comes back")


@dataclass(frozen=True)
class Asked:
    question: Question
    texts: list[str]  # of the answers, in order
    invented: list[str]
    grade: str  # right | abstained | wrong

    @property
    def tokens(self) -> int:
        return sum(map(token_count, self.texts))


def client_of(root: Path, *more: str) -> Client:
    """A client of a server that serves `root`.

    Its stderr is this process's own: by default it is what stood there as the SDK was imported.
    """
    words = ["-m", "profiling", "mcp", "--root", str(root), *more]
    server = StdioServerParameters(command=sys.executable, args=words, cwd=PROJECT)
    return Client(stdio_client(server, errlog=sys.__stderr__ or sys.stderr))


def text_of(result: CallToolResult) -> str:
    return "".join(str(getattr(block, "text", "")) for block in result.content)


async def print_session(root: Path) -> None:
    async with client_of(root) as client:
        print("tools:", *(tool.name for tool in (await client.list_tools()).tools))
        for tool, arguments in SESSION:
            result = await client.call_tool(tool, arguments)
            print(f"\n> {tool} {json.dumps(arguments)}{'   (error)' if result.is_error else ''}")
            print(text_of(result))


async def ask(root: Path) -> tuple[list[list[str]], int]:
    """Texts of the answers to each question, and the tokens of the list of tools."""
    async with client_of(root) as client:
        tools = (await client.list_tools()).tools
        listed = sum(token_count(tool.model_dump_json(exclude_none=True)) for tool in tools)
        answers = []
        for question in QUESTIONS:
            texts: list[str] = []
            for tool, arguments in question.calls:
                last = json.loads(texts[-1])["evidence"][0].split("/")[0] if texts else ""
                given = json.loads(json.dumps(arguments).replace(ID, last))
                result = await client.call_tool(tool, given)
                texts.append(text_of(result))
            answers.append(texts)
    return answers, listed


def grade(question: Question, text: str) -> str:
    """Grade an answer: right, abstained or wrong."""
    if not text.startswith("{"):
        return "wrong"
    answer = json.loads(text)
    found, untold = at(answer, question.where), " ".join(answer.get("cannot_tell", []))
    if question.answer is None:
        return "right" if found is None and question.tells in untold and untold else "wrong"
    if found is None:
        return "abstained" if untold else "wrong"
    if isinstance(question.answer, str):
        return "right" if question.answer in str(found) else "wrong"
    close = isinstance(found, int | float) and np.isclose(found, question.answer, rtol=ROUNDED)
    return "right" if close else "wrong"


def at(answer: dict[str, object], where: str) -> object:
    """Value at a place such as rows.0.name, names resolved; None if there is none."""
    value: object = answer
    for step in where.split("."):
        if isinstance(value, list):
            value = value[int(step)] if int(step) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(step)
    names = answer.get("names_from_capture")
    return names.get(value, value) if isinstance(names, dict) and isinstance(value, str) else value


@dataclass(frozen=True)
class Known:
    """Facts that the verb itself says about a question's captures."""

    record: str  # the JSON, on one line
    sums: str  # as CSV, of captures; "": a run or several ranks
    numbers: np.ndarray  # in the record, sorted
    words: frozenset[str]  # numbers in what the verb prints, and in the record's texts

    def has(self, number: str, in_words: bool) -> bool:
        """Whether the number is said, or recorded: rounded as in words, or to four digits."""
        bare = number.replace(",", "")
        if bare in self.words:
            return True
        value, decimals = float(bare), len(bare.partition(".")[2])
        if in_words:
            half = 0.5001 * 10**-decimals if decimals else 0.0
            return self.between(value - half, value + half)
        sizes = [value / scale for scale in SCALES]
        return any(self.between(size * (1 - ROUNDED), size * (1 + ROUNDED)) for size in sizes)

    def between(self, least: float, most: float) -> bool:
        place = int(np.searchsorted(self.numbers, least))
        return place < len(self.numbers) and bool(self.numbers[place] <= most)


def verb_of(call: Call) -> list[str]:
    """The command whose record the call shortens."""
    tool, given = call
    if tool == "compare":
        return ["compare", str(given["before"]), str(given["after"])]
    path = str(given.get("capture", given.get("path")))
    if tool == "whatif":
        return ["whatif", path, *(["--graphs"] if given.get("graphs") else [])]
    if tool == "scale":
        return ["scale", path, f"--gpus={str(given['gpus'])[1:-1]}"]
    return ["report", path]


@cache
def known(root: Path, *words: str) -> Known:
    """Read what the verb says in its --json and its text."""
    verb, *rest = words
    paths = [str(root / word) if (root / word).exists() else word for word in rest]
    out, file = io.StringIO(), root / "record.json"
    file.unlink(missing_ok=True)
    start: Callable[[list[str]], int] = import_module(f"profiling.verbs.{verb}").main
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        for more in ([f"--json={file}"], ["--full"] if verb == "report" else []):
            with suppress(ValueError):  # a refusal, of which the record is still written
                start([*paths, *more])
    text = file.read_text("utf-8") if file.is_file() else "{}"
    file.unlink(missing_ok=True)
    if text == "{}":
        text = "".join(path.read_text("utf-8") for path in (root / rest[0]).glob("summary.json"))
    record = json.loads(text or "{}")
    found = list(leaves(record))
    texts = [out.getvalue(), *(each for each in found if isinstance(each, str))]
    values = [abs(float(each)) for each in found if isinstance(each, int | float)]
    lengths = [len(each) for each in record.values() if isinstance(each, list)]
    sums = "".join(csv_of(record.get(name) or []) for name in SUMS) if verb == "report" else ""
    said = frozenset(word.replace(",", "") for word in NUMBER.findall(" ".join(texts)))
    return Known(json.dumps(record), sums, np.unique([*values, *lengths]), said)


def csv_of(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join("\t".join(map(str, row.values())) + "\n" for row in rows)


def numbers_in(text: str) -> Iterator[tuple[str, bool]]:
    """The numbers in an answer, and whether each is in a sentence."""
    answer = json.loads(text) if text.startswith("{") else {"sentence": text}
    for value in leaves({name: said for name, said in answer.items() if name not in NOT_SAID}):
        if isinstance(value, str):
            bare = re.sub(r"\b[0-9a-f]{8}\b|\bn\d+\b", "", value)  # ids and references
            yield from ((word, True) for word in NUMBER.findall(bare))
        elif isinstance(value, int | float):
            yield repr(abs(value)), False


def leaves(value: object) -> Iterator[object]:
    """The texts and numbers at any depth, but for ids."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from leaves(inside) if key != "id" else ()
    elif isinstance(value, list):
        for inside in value:
            yield from leaves(inside)
    else:
        yield value


def ask_all(root: Path) -> tuple[list[Asked], int]:
    """Ask the server; return what came, graded, and the tokens of its list of tools."""
    answers, listed = asyncio.run(ask(root))
    asked = []
    for question, texts in zip(QUESTIONS, answers, strict=True):
        facts = known(root, *verb_of(question.calls[0]))
        words = {word for text in texts for word in numbers_in(text)}
        invented = [word for word, in_words in words if not facts.has(word, in_words)]
        asked.append(Asked(question, texts, invented, grade(question, texts[-1])))
    return asked, listed


def raw_lines(path: Path) -> Iterator[str]:
    """The whole content of a capture as text: its JSON, or its tables as SQL."""
    files = sorted(path.glob("*.gz")) if path.is_dir() else [path]
    for file in files or sorted(path.glob("*.*")):
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        if file.suffix == ".pickle":  # which make_folder wrote
            content = json.dumps(pickle.loads(content)).encode()
        if not content.startswith(b"SQLite"):
            yield content.decode("utf-8", "replace")
            continue
        base = sqlite3.connect(":memory:")
        base.deserialize(content)
        yield from base.iterdump()


@cache
def raw_tokens(path: Path) -> int:
    return sum(map(token_count, raw_lines(path)))


@cache
def raw_head(path: Path) -> str:
    """The beginning of the text, as long as an answer of the server may be."""
    length, head = CHARACTERS_PER_TOKEN * MOST_TOKENS, ""
    for line in raw_lines(path):
        head += f"{line}\n"[: length - len(head)]
        if len(head) == length:
            break
    return head


def of_sums(question: Question) -> bool:
    """Whether the question is about sums over a capture: of kernels, calls, copies."""
    tool, given = question.calls[-1]
    return tool == "evidence" or given.get("name") in ("kernels", "memory")


def holds(text: str, question: Question) -> bool:
    """Whether the answer is in a text, in whatever unit. Words such as `memory` are so by chance,
    too: a text of sums is asked only about them."""
    if isinstance(question.answer, str):
        return question.answer in text
    wanted = float(question.answer or 0)
    found = [float(word.replace(",", "")) for word in NUMBER.findall(text)]
    near = [np.isclose(found, wanted / scale, rtol=ROUNDED).any() for scale in SCALES]
    return bool(found) and any(near)


def main(config: AgentConfig) -> None:
    """Ask, and print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        root = make_folder(Path(folder))
        if config.session:
            asyncio.run(print_session(root))
            return
        asked, listed = ask_all(root)
        print("| question | answer | calls | tokens |\n|---|---|---|---|")
        for each in asked:
            calls = " ".join(tool for tool, _ in each.question.calls)
            said = f"**{each.grade}**" if each.grade != "right" else each.grade
            kind = "cannot tell, " if each.question.answer is None else ""
            print(f"| {each.question.text} | {kind}{said} | {calls} | {each.tokens} |")
        print(
            "\n| reader | answer is in it | abstained rightly | invented | tokens, median | most |"
        )
        print("|---|---|---|---|---|---|")
        for line in readers(root, asked):
            print(line)
        print(f"\nThe list of tools takes {listed} tokens, once in a session.")
        print(
            f"A number that is 1 % off would be noticed in {noticed(root, asked):.0f} % of cases."
        )


def readers(root: Path, asked: Sequence[Asked]) -> Iterator[str]:
    """Rows of the table: the server, and readers of whole files."""
    answerable = [each for each in asked if each.question.answer is not None]
    right = [each for each in asked if each.grade == "right"]
    told = sum(each.question.answer is not None for each in right)
    abstained, invented = len(right) - told, sum(len(each.invented) for each in asked)
    yield row_of(
        "the server", f"{told} of {len(answerable)}", abstained, invented, [e.tokens for e in asked]
    )
    facts = {id(each): known(root, *verb_of(each.question.calls[0])) for each in asked}
    for name, text in (("--json of the verb", "record"), ("sums as of nsys stats", "sums")):
        texts = {key: str(getattr(fact, text)) for key, fact in facts.items()}
        about = [each for each in answerable if text == "record" or of_sums(each.question)]
        found = sum(holds(texts[id(each)], each.question) for each in about)
        sizes = [token_count(texts[id(each)]) for each in asked if texts[id(each)]]
        yield row_of(name, f"{found} of {len(answerable)}", "-", "-", sizes)
    whole, heads = [], []
    for each in asked:
        given = [root / word for word in verb_of(each.question.calls[0])[1:]]
        paths = [path for path in given if path.exists()]
        whole.append(sum(map(raw_tokens, paths)))
        heads.append("".join(map(raw_head, paths)))
    found = sum(
        holds(head, each.question)
        for head, each in zip(heads, asked, strict=True)
        if each.question.answer is not None
    )
    sizes = [*map(token_count, heads)]
    yield row_of(
        "the captures' beginning as text", f"{found} of {len(answerable)}", "-", "-", sizes
    )
    yield row_of("the captures as text", "must be computed", "-", "-", whole)


def row_of(
    name: str, found: str, abstained: object, invented: object, tokens: Sequence[int]
) -> str:
    middle, most = statistics.median(tokens), max(tokens)
    return f"| {name} | {found} | {abstained} | {invented} | {middle:,.0f} | {most:,} |"


def noticed(root: Path, asked: Sequence[Asked]) -> float:
    """Percentage of the answers' numbers that would count as invented if they were 1 % more."""
    caught = []
    for each in asked:
        facts = known(root, *verb_of(each.question.calls[0]))
        for text in each.texts:
            for word, in_words in numbers_in(text):
                if value := float(word.replace(",", "")):
                    caught.append(not facts.has(f"{value * 1.01:.4g}", in_words))
    return 100 * statistics.mean(caught)
