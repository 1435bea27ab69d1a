"""Commands that are wrong for certain: is each refused with exit code 2 and one line?

Each of CLASSES makes one mistake of a known kind in a command line of one of the programs, so that
exit code 0 is a mistake that was taken in silence; part=inputs, whose values may be right, cannot
tell. A failure is

- silent: exit code 0; wrong code: any other than 2
- traceback; several lines: on stderr; hang: still at work at the limit
"""

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

from cli.keys import Key, keys
from cli.plain import plain
from configs.data import DataConfig
from configs.export import ExportConfig
from configs.preparing import FilesConfig
from configs.sampling import SampleConfig
from configs.schema import Config
from profiling.__main__ import VERBS
from tests.soak import bad_inputs, forks
from tests.soak.bad_inputs import CAPTURE, FILE, RUN, SAMPLE, TEXT, Case
from tests.soak.forks import ProcessEnd
from tests.soak.inputs import QUIET, trials_on_a_run
from tests.soak.trials import Trial

# program -> (schema of its keys, words before a wrong one)
PROGRAMS = {
    "train": (Config, [FILE]),
    "sample": (SampleConfig, SAMPLE),
    "data.prepare": (FilesConfig, [TEXT, "tokenizer=char", "out=made"]),
    "data.prepare of a dataset": (DataConfig, [f"data_source={TEXT}"]),
    "training.export": (ExportConfig, [f"out_dir={RUN}", "folder=made"]),
}
NO_NUMBERS = (
    "9" * 5000,
    "abc",
    "1,5",
    "0x1g",
    "--",
    "{a:1}",
    "[1]",
    "é",
    "1 2",
    "\u202e1",
    "5e",
    "",
    "'",
)
SPECIAL = ("fifo", "/dev/zero", "loop", "nowhere", "folder", "empty", "bytes", "cut.json.gz", TEXT)
# verb that reads a file or folder first -> words after it
READING = {
    "report": [],
    "compare": [CAPTURE],
    "export": ["--perfetto", "x.json"],
    "scrub": ["-o", "x.json"],
    "log": [],
    "dashboard": ["-o", "x.html"],
    "home": ["-o", "x.html"],
    "hang": [],
    "trigger": [],
    "scale": [],
    "whatif": [],
}
WRONG_PLACES = ("nowhere/x{}", "folder", "x.wrong", "loop{}", "fifo{}", "/dev/null/x{}")


def key_of(chance: random.Random, fits: Callable[[Key], bool]) -> tuple[str, list[str], Key]:
    """(program, words before the wrong one, one of its keys that `fits` accepts)."""
    able = {
        name: [key for key in keys(schema).values() if fits(key)]
        for name, (schema, _) in PROGRAMS.items()
    }
    name = chance.choice([name for name, found in able.items() if found])
    return name.split()[0], PROGRAMS[name][1], chance.choice(able[name])


def unknown_key(chance: random.Random) -> Case:
    program, words, key = key_of(chance, lambda key: True)
    letters = list(key.name)
    letters.insert(chance.randrange(len(letters) + 1), chance.choice("qxzé"))
    return Case(program, [*words, f"{''.join(letters)}=1"], [])


def wrong_type(chance: random.Random) -> Case:
    program, words, key = key_of(chance, lambda key: key.kind in (int, float, bool))
    values = [value for value in NO_NUMBERS if not (key.kind is float and value[0:1] == "9")]
    value = chance.choice([*values, "7"] if key.kind is bool else values)
    return Case(program, [*words, f"{key.name}={value}"], [key.name])


def out_of_range(chance: random.Random) -> Case:
    program, words, key = key_of(chance, lambda key: key.kind in (int, float) and key.least > -1e9)
    values = [f"{key.least - 1:.0f}", f"-{10**40}", str(-(2**63))]
    values += [str(10**40)] if key.kind is int else ["nan"]
    return Case(program, [*words, f"{key.name}={chance.choice(values)}"], [key.name])


def wrong_choice(chance: random.Random) -> Case:
    program, words, key = key_of(chance, lambda key: bool(key.choices) and key.kind is str)
    value = chance.choice([f"{key.choices[0]}x", "nope", "", "[]", "3", "é", "null?"])
    return Case(program, [*words, f"{key.name}={value}"], [])


def conflict(chance: random.Random) -> Case:
    words = chance.choice(
        (
            ["n_embd=15", "n_head=2"],
            ["lr_decay_iters=1", "warmup_iters=5", "max_iters=4", "n_layer=0"],
            ["profile=torch", "profile.start=9"],
            ["profile=nsys"],
            ["cuda_graphs=true"],
            ["profile=torch", "profile.steps=9"],
            ["shard_ranks=2"],
            ["weights=nowhere"],
            ["hydra.run.dir=x"],
            ["seed=1,2"],
            ["attention=flash", "dropout=0.1", "device=cuda:99"],
            ["residual_dtype=bfloat16", "dtype=float32"],
        )
    )
    return Case("train", [FILE, *words], [])


def special_path(chance: random.Random) -> Case:
    """Name a pipe, device, folder, missing file or link to itself where a key wants a file."""
    place = chance.choice(SPECIAL[:5])
    program, words = chance.choice(
        (
            ("train", [FILE, f"data_source={place}"]),
            ("train", [FILE, f"dataset={place}"]),
            ("train", [place]),
            ("train", [FILE, "init_from=weights", f"weights={place}"]),
            ("train", [FILE, "init_from=resume", f"out_dir={place}"]),
            ("sample", [*SAMPLE[1:], f"out_dir={place}"]),
            ("sample", [*SAMPLE, f"start=FILE:{place}"]),
            ("data.prepare", [place, "tokenizer=char"]),
            ("training.export", [f"out_dir={place}", "folder=made"]),
        )
    )
    return Case(program, words, [])


def verb_file(chance: random.Random) -> Case:
    verb = chance.choice(list(READING))
    return Case("profiling", [verb, chance.choice(SPECIAL), *READING[verb]], [])


def verb_output(chance: random.Random) -> Case:
    """Write to a place that cannot be written, or with a suffix that means another format."""
    verb, flag, suffix = chance.choice(
        (
            ("report", "--html", ".html"),
            ("report", "--json", ".json"),
            ("compare", "--html", ".html"),
            ("export", "--perfetto", ".json"),
        )
    )
    place = chance.choice(WRONG_PLACES).format(suffix)
    second = [CAPTURE] if verb == "compare" else []
    return Case("profiling", [verb, CAPTURE, *second, flag, place], [])


def verb_words(chance: random.Random) -> Case:
    verb = chance.choice(list(VERBS))
    words = chance.choice((["--nope"], ["--jsn", "a"], ["-\u202e"], ["--", "--x", "é"]))
    if chance.random() < 0.1:
        return Case("profiling", [verb + "q"], [])
    return Case("profiling", [verb, *words], [])


CLASSES: dict[str, Callable[[random.Random], Case]] = {
    "unknown key": unknown_key,
    "wrong type": wrong_type,
    "out of range": out_of_range,
    "no such choice": wrong_choice,
    "conflicting keys": conflict,
    "path of a key": special_path,
    "file of a verb": verb_file,
    "output of a verb": verb_output,
    "words of a verb": verb_words,
}


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Yield `count` trials; each depends on its own seed alone."""
    return trials_on_a_run(trial, count, seed, limit_s)


def trial(seed: int, run: Path, limit_s: float) -> Trial:
    chance = random.Random(f"wrong {seed}")
    kind = chance.choice(list(CLASSES))
    case = CLASSES[kind](chance)
    with tempfile.TemporaryDirectory(prefix="wrong-") as folder, chdir(folder):
        bad_inputs.prepare_folder(run)
        for suffix in ("", ".html", ".json"):
            os.mkfifo(f"fifo{suffix}")
            Path(f"loop{suffix}").symlink_to(f"loop{suffix}")
        ended = forks.run_in_fork(forks.program(case.program, case.words), QUIET, limit_s)
    outcome, what = judge(ended)
    if what is None:
        return Trial(seed, kind, outcome)
    command = " ".join(plain(repr(word))[:90] for word in [case.program, *case.words])
    return Trial(seed, kind, outcome, f"{command}: {what}")


def judge(ended: ProcessEnd) -> tuple[str, str | None]:
    """(outcome, what went wrong or None)."""
    lines = [line for line in ended.err.splitlines() if line.strip()]
    last = plain(lines[-1])[:300] if lines else "nothing was said"
    if "Traceback (most recent call last)" in ended.err + ended.out:
        return "traceback", last
    if ended.status is None:
        return "hang", f"{ended.wall_s:.0f} s, {last}"
    if ended.status != 2:
        return "wrong code" if ended.status else "silent", f"exit code {ended.status}, {last}"
    if len([line for line in lines if not line.startswith("warning: ")]) != 1:
        return "several lines", f"{len(lines)} lines, {last}"
    return "refused", None
