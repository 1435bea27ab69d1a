"""Bad inputs at random, from a seed: keys, configuration files, environment, checkpoints, verbs.

Each of KINDS writes what it needs into the current folder, as `chance` says, and returns the
command and what a refusal has to name. They are made from the declarations of keys and flags, so
that a new one is tried without a line here. Many of the values are right: these have to run.
"""

import argparse
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from cli.keys import Key, keys
from cli.parser import Parser
from configs.data import DataConfig
from configs.sampling import SampleConfig
from configs.schema import Config
from profiling.__main__ import VERBS
from tests.soak import damage
from tests.soak.fuzzed_files import CAPTURES

TEXT, RUN, CAPTURE, FILE = "text.txt", "run", "capture.json.gz", "tiny.yaml"
TINY = f"""\
out_dir: out
device: cpu
compile: false
data_source: {TEXT}
n_layer: 1
n_head: 2
n_embd: 16
block_size: 16
batch_size: 2
dropout: 0.0
max_iters: 2
eval_iters: 1
eval_interval: 2
log_interval: 1
always_save_checkpoint: true
wandb:
  mode: disabled
"""
SAMPLE = [f"out_dir={RUN}", "num_samples=1", "max_new_tokens=3", "device=cpu"]
# values for each type of keys and flags: wrong, at a limit, and right
INTEGERS = "-1 0 1 2 3 1.5 1e3 1e400 abc 0x10 1_000 nan 2147483648 4294967296 9223372036854775808"
INTEGERS += f" {10**23} -{10**23} true"
FLOATS = "-1 0 1 0.5 1e-40 1e308 1e400 -inf inf nan abc 1,5 .5 5e true 1e-400"
BOOLEANS = "true FALSE maybe 2 yes 0 None"
TEXTS = "a /nowhere/x.txt . / ~ cpu cuda:99 é 本 a,b a=b (1) [a] {a:1} $HOME ${oc.env:HOME} \\n"


def split_words(text: str) -> list[str]:
    """Pieces of the text between ` | `; the end of a line separates as well."""
    return [word for line in text.strip("\n").splitlines() for word in line.split(" | ")]


ANY = ["", "x" * 300, "\u202e"]
ANY += split_words("""
null | [1 | {a: 1 | ${nope} | ${oc.env:NOPE} | a b | ' | " | [] | {} | [1,2] | 1,2 | range(1,3)
glob(*) | choice(1) | ??? | ${ | !!int 3 | -
""")
YAML = ["\tn_layer: 1", "n_layer: 1\nn_layer: 2", "a: " + "[" * 3000]
YAML += split_words("""
a: &x [*x] | min_lr: ${learning_rte} | min_lr: ${min_lr} | n_layer: !!python/object:os.x | - a
n_layr: 1 | wandb: 3 | wandb: [a] | ? a | profile: torch | profile: {kind: nope} | profile: | 1: 2
defaults: [nope] | n_layer: 2020-01-01 | hydra: {run: {dir: x}} | hydra: 3 | seed: 0o17 | null: 1
n_layer: .nan | out_dir: 3 | wandb: {tags: 3} | wandb: {nope: 1} | n_layer: {a: 1} | a: &x 1
""")
WORDS = split_words("""
 | -- | = | =3 | n_layer= | +n_layer=3 | ~n_layer | --n_layer | -x | nope.yaml | n_layer 3 | / | .
--n_layer=3=4 | max_itrs=3 | wandb.mod=x | config/nope.yaml | hydra.run.dir=/dev/null/x | @
hydra/launcher=joblib | -m seed=glob(*) | -m seed=1,x | -m device=cpu,cuda | --config-dir=/
--cfg nope | --multirun out_dir=a,a | n_layer=1 -q | text.txt
""")
ENVIRONMENT = split_words("""
WORLD_SIZE | RANK | LOCAL_RANK | MASTER_PORT | TMPDIR | HOME | TERM | COLUMNS | OMP_NUM_THREADS
CUDA_VISIBLE_DEVICES | HYDRA_FULL_ERROR | TINY_SHAKESPEARE_URL | WANDB_MODE | WANDB_DIR
WANDB_PROJECT | WANDB_NAME | WANDB_TAGS | WANDB_API_KEY
""")
FILES = ("nowhere", "empty", "folder", TEXT, CAPTURE, "cut.json.gz", "bytes", RUN, "/dev/null", "-")
OUTPUTS = ["nowhere/x.html", "folder", CAPTURE, f"{RUN}/summary.json", "/x"]
OUTPUTS += ["x.html", "x.json", "x.md"]
# a flag with which a verb is refused before it begins its work, whatever else is given
REFUSED = {
    "ab": ["n_layer=1"],
    "attention": ["--device", "nope"],
    "compiled": ["n_layer=0"],
    "dashboard": ["--loss", "0"],
    "device": ["--device", "nope"],
    "doctor": ["--nope"],
    "kernels": ["--device", "nope"],
    "mcp": ["--nope"],
    "ncu": ["--ncu", "/nowhere/ncu"],
    "run": ["--nsys", "/nowhere/nsys"],
    "square": ["--device", "nope"],
}
TAKES_FILES = ("report", "compare", "export", "log", "scrub", "dashboard", "ncu")


@dataclass(frozen=True)
class Case:
    program: str  # as tests.soak.forks knows it
    words: list[str]
    names: list[str]  # of which a refusal has to contain one; empty: no check
    environ: dict[str, str] = field(default_factory=dict)


def prepare_folder(run: Path) -> None:
    """Write what the commands read into the current folder: text, configuration, run, captures."""
    Path(TEXT).write_text("To be, or not to be, that is the question.\n" * 60, "utf-8")
    Path(FILE).write_text(TINY, "utf-8")
    if run.is_dir():
        shutil.copytree(run, RUN)
    shutil.copy(CAPTURES / "flash_eager.trace.json.gz", CAPTURE)
    Path("cut.json.gz").write_bytes(Path(CAPTURE).read_bytes()[:5000])
    Path("bytes").write_bytes(random.Random(0).randbytes(3000))
    Path("empty").touch()
    Path("folder").mkdir()


def bad_value(of: Key, chance: random.Random) -> str:
    """Value for a key: often of its own type or near its choices, else any text."""
    own = {int: INTEGERS, float: FLOATS, bool: BOOLEANS}.get(of.kind, TEXTS).split()
    if of.choices:
        own = [*of.choices, *(f"{choice}x" for choice in of.choices), "Auto"]
    return chance.choice(own if chance.random() < 0.6 else ANY)


def training_key(chance: random.Random) -> Case:
    key = chance.choice(list(keys(Config).values()))
    word = f"{key.name}={bad_value(key, chance)}"
    return Case("train", [FILE, word], [*key.name.split("."), word])


def sampling_key(chance: random.Random) -> Case:
    key = chance.choice(list(keys(SampleConfig).values()))
    word = f"{key.name}={bad_value(key, chance)}"
    also = ["ckpt.pt"] if key.name == "out_dir" else []
    return Case("sample", [*SAMPLE, word], [*key.name.split("."), word, *also])


def preparing_key(chance: random.Random) -> Case:
    key = chance.choice(list(keys(DataConfig).values()))
    word = f"{key.name}={bad_value(key, chance)}"
    words = [f"data_source={TEXT}", "tokenizer=local", "dataset=shakespeare_bpe", word]
    return Case("data.prepare", words, [key.name])


def training_file(chance: random.Random) -> Case:
    """Write a configuration with a wrong or meaningless line of YAML, or with damaged bytes."""
    content = TINY.encode()
    how = chance.random()
    if how < 0.6:
        lines = TINY.splitlines()
        lines.insert(chance.randrange(len(lines)), chance.choice(YAML))
        content = "\n".join(lines).encode()
    elif how < 0.7:
        content = damage.BOMB
    else:
        content = chance.choice((damage.flip_bytes, damage.cut_off))(content, chance)
    Path("bad.yaml").write_bytes(content)
    words = ["bad.yaml", "max_iters=2", "wandb.mode=disabled", "out_dir=out", "device=cpu"]
    return Case("train", [*words, "n_layer=1", "n_embd=16", "n_head=2", f"data_source={TEXT}"], [])


def training_words(chance: random.Random) -> Case:
    words = chance.choice(WORDS).split(" ")
    return Case("train", [FILE, *words], [])


def variable(chance: random.Random) -> Case:
    name = chance.choice(ENVIRONMENT)
    value = chance.choice([*INTEGERS.split(), *TEXTS.split(), *ANY])
    program, words = chance.choice((("train", [FILE]), ("sample", SAMPLE)))
    return Case(program, words, [name, name.lower().removeprefix("wandb_")], {name: value})


def checkpoint(chance: random.Random) -> Case:
    """Damage, replace or remove the checkpoint, and resume or sample from it."""
    path = Path(RUN, "ckpt.pt")
    whole = path.read_bytes()
    path.unlink()
    how = chance.randrange(5)
    if how == 0:
        path.mkdir()
    elif how == 1:
        path.write_bytes(chance.choice((b"", b"text", whole[: chance.randrange(len(whole))])))
    elif how == 2:
        path.write_bytes(damage.flip_bytes(whole, chance))
    elif how == 3:
        path.symlink_to("ckpt.pt")
    if chance.random() < 0.5:
        return Case("sample", SAMPLE, ["ckpt.pt"])
    return Case("train", [FILE, f"out_dir={RUN}", "init_from=resume", "max_iters=3"], ["ckpt.pt"])


def verb_flag(chance: random.Random) -> Case:
    """One of a verb's own flags with a random value, beside what the verb requires."""
    verb = chance.choice(list(VERBS))
    flag = chance.choice(flags_of(verb))
    values = [*INTEGERS.split(), *FLOATS.split(), *OUTPUTS, *ANY]
    given = [chance.choice(flag.option_strings)]
    if flag.nargs != 0:
        given.append(
            chance.choice([*values, *(str(choice) + "x" for choice in flag.choices or ())])
        )
    needed = [CAPTURE] if verb in ("report", "log", "export", "scrub") else []
    needed = {"compare": [RUN, RUN], "dashboard": [RUN]}.get(verb, needed)
    needed += {"export": ["--perfetto", "t.json"], "scrub": ["-o", "copy.json"]}.get(verb, [])
    if flag.dest == "watch":  # which is right, and serves until it is stopped
        needed += ["-o", "x.html"]
    return Case("profiling", [verb, *needed, *given, *REFUSED.get(verb, [])], [])


def verb_file(chance: random.Random) -> Case:
    """Files that a verb perhaps cannot read, and an output that it perhaps cannot write."""
    verb = chance.choice(TAKES_FILES)
    count = 2 if verb == "compare" else 1
    words = [chance.choice(FILES) for _ in range(count)]
    needed = {"export": ["--perfetto"], "scrub": ["-o"], "dashboard": ["-o"]}.get(verb, ["--html"])
    if verb != "log":
        words += [*needed, chance.choice(OUTPUTS)]
    return Case("profiling", [verb, *words], [*words, "-o", "CAPTURE"])


def verb_words(chance: random.Random) -> Case:
    verb = chance.choice([*VERBS, "nope", "", "Report"])
    words = chance.choice((["--nope"], ["-x"], ["--jsn", "a"], ["nowhere"] * 7, ["--", "nowhere"]))
    return Case("profiling", [verb, *words], [])


def flags_of(verb: str) -> list[argparse.Action]:
    """Flags that the verb declares to its parser, without --open and --in-place."""
    from importlib import import_module

    flags: list[argparse.Action] = []

    def keep(parser: Parser, *_: object) -> None:
        flags.extend(action for action in parser._actions if action.option_strings)
        raise ValueError("only looked at")

    with mock.patch.object(Parser, "parse_known_args", keep):
        try:
            import_module(f"profiling.verbs.{verb}").main([])
        except ValueError:
            return [flag for flag in flags if flag.dest not in ("open", "in_place")]
    raise AssertionError(f"{verb}: reads its words without a Parser")


KINDS: dict[str, Callable[[random.Random], Case]] = {
    "key of train.py": training_key,
    "key of sample.py": sampling_key,
    "key of data.prepare": preparing_key,
    "configuration file": training_file,
    "words of train.py": training_words,
    "environment": variable,
    "checkpoint": checkpoint,
    "flag of a verb": verb_flag,
    "file of a verb": verb_file,
    "words of a verb": verb_words,
}
WEIGHTS = (150, 60, 40, 70, 40, 50, 40, 70, 60, 20)  # of 600
