"""Printed commands, pasted: through a shell, and through our own readers."""

import ast
import subprocess

import pytest

from cli.keys import parse_keys
from configs.command_line import compose_one
from configs.data import DataConfig
from configs.sampling import SampleConfig
from data.prepare import training_command
from data.tokenizers import CharTokenizer
from sample import encode_prompt
from training.ranks.next_commands import load_command, report_command, sample_command

FOLDERS = ["out", "my run", "it's", "a=b", "$HOME", "a;b", "ünïcödé", "*", "--help", "-x", "a\tb"]


def pasted(command: str) -> list[str]:
    """The words behind `python`, as a shell reads the line."""
    shell = 'python() { for word; do printf "%s\\0" "$word"; done; }\n' + command
    done = subprocess.run(["sh", "-c", shell], capture_output=True, check=True, cwd="/")
    assert not done.stderr
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(
    "text", ["ROMEO: hi\n", "abc\n", "  ", "日本語", "0123", '"', "\\n", "'", "x\0"]
)
def test_sampling_begins_with_what_the_text_has(folder, text):
    tokenizer = CharTokenizer(text)
    command = sample_command(folder, tokenizer)
    script, *words = pasted(command)
    assert script == "sample.py"
    config = parse_keys(words, SampleConfig)
    assert config.out_dir == folder
    encode_prompt(config.start, tokenizer)  # raises where a character is foreign


def test_a_text_that_nobody_can_type_has_no_command():
    assert sample_command("out", CharTokenizer("\0\1")) is None


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_report_is_of_the_folder(folder):
    assert pasted(report_command(folder)) == ["-m", "profiling", "report", folder]


@pytest.mark.parametrize("folder", FOLDERS)
def test_transformers_loads_the_folder_of_an_export(folder):
    flag, program = pasted(load_command(folder))
    load = ast.parse(program).body[-1].value
    assert flag == "-c" and load.func.attr == "from_pretrained"
    assert ast.literal_eval(load.args[0]) == folder


@pytest.mark.parametrize("name", ["novel.txt", "my novel.txt", "x_1-2.txt"])
def test_the_training_of_a_text_reads_it(name):
    config = DataConfig(data_source=f"/texts/{name}", batch_size=3, offline_fallback=False)
    script, *words = pasted(training_command(config))
    composed = compose_one(words)
    assert script == "train.py" and composed.attention == "flash"
    kept = composed.data_source, composed.batch_size, composed.offline_fallback
    assert kept == (f"/texts/{name}", 3, False)
