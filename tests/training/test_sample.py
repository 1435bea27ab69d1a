import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch

import sample as program
from cli.help import read_keys
from configs.attention import AUTO, TABLE
from configs.sampling import HELP, SampleConfig
from data.standin import stand_in_text
from data.tokenizers import BpeTokenizer, CharTokenizer
from model import GPT, KeyValueCache, draw_token
from tests.helpers.checkpoints import BLOCK_SIZE, tiny, tiny_model, write_checkpoint
from tests.paths import PROJECT
from training import checkpoint
from training.decode import GraphedDecode

TEXT = stand_in_text(length=20_000)
ON_CPU = [*(each.name for each in TABLE if not each.cuda_only), AUTO]
SEPARATOR = "\n---------------\n"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Several only wait for each other over tensors this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def out_dir(tmp_path_factory) -> str:
    return write_checkpoint(tmp_path_factory.mktemp("char"), CharTokenizer(TEXT))


@pytest.fixture
def run(monkeypatch, capsys) -> Run:
    """Runs sample.py in this process; returns exit code, stdout and stderr."""
    monkeypatch.setattr(logging.root, "handlers", [])

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sample.py", "device=cpu", *arguments])
        code = 0
        try:
            program.main(read_keys(HELP, SampleConfig))
        except SystemExit as exit:
            code = exit.code
        return code, *capsys.readouterr()

    return call


def generator(seed: int = 0, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def cache_for(model: GPT, batch: int = 1) -> KeyValueCache:
    weight = model.lm_head.weight
    return KeyValueCache(model.config, batch, weight.device, weight.dtype)


def decode_of(model: GPT, temperature: float, generator: torch.Generator):
    return partial(model.decode, temperature=temperature, top_k=None, generator=generator)


def tokens(model: GPT, idx: torch.Tensor, count: int, cache=None, temperature=0.0, seed=0):
    decode = decode_of(model, temperature, generator(seed, idx.device.type))
    new = model.generate(idx, count, cache or cache_for(model), decode)
    return [token.item() for token in new]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ON_CPU)
@torch.no_grad()
def test_logits_with_the_cache_equal_those_without(attention):
    model = tiny_model(tiny(attention))
    idx = torch.randint(65, (2, BLOCK_SIZE), generator=generator())
    for prompt in (1, 5, BLOCK_SIZE - 1):
        cache = cache_for(model, 2)
        with_cache, _ = model(idx[:, :prompt], cache=cache)
        for length in range(prompt, BLOCK_SIZE + 1):
            without, _ = model(idx[:, :length])
            torch.testing.assert_close(with_cache, without, rtol=0, atol=1e-5)
            if length < BLOCK_SIZE:
                with_cache, _ = model(idx[:, length : length + 1], cache=cache)
        assert cache.length == BLOCK_SIZE


@pytest.mark.slow
@pytest.mark.parametrize("attention", ON_CPU)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("prompt", [1, BLOCK_SIZE, BLOCK_SIZE + 5])
@torch.no_grad()
def test_text_within_and_past_the_block_equals_a_loop_without_cache(attention, temperature, prompt):
    model = tiny_model(tiny(attention))
    idx = torch.randint(65, (1, prompt), generator=generator())
    draw = generator()
    expected = idx[0].tolist()
    seen = min(prompt, BLOCK_SIZE)
    for _ in range(2 * BLOCK_SIZE):
        if seen > BLOCK_SIZE:
            seen = BLOCK_SIZE // 2
        logits, _ = model(torch.tensor([expected[-seen:]]))
        expected.append(draw_token(logits[:, -1], temperature, None, draw).item())
        seen += 1
    assert tokens(model, idx, 2 * BLOCK_SIZE, temperature=temperature) == expected[prompt:]


def test_each_sequence_of_a_batch_goes_its_own_way():
    model = tiny_model(tiny())
    idx = torch.randint(65, (2, 3), generator=generator())
    decode = decode_of(model, 0.0, generator())
    both = torch.cat(list(model.generate(idx, 20, cache_for(model, 2), decode)), dim=1)
    assert both.tolist() == [tokens(model, idx[:1], 20), tokens(model, idx[1:], 20)]


def test_a_cache_used_again_gives_the_same_text():
    model = tiny_model(tiny())
    cache = cache_for(model)
    idx = torch.zeros(1, 1, dtype=torch.long)
    assert tokens(model, idx, 20, cache) == tokens(model, idx, 20, cache) == tokens(model, idx, 20)


def test_draws_have_the_probabilities_of_the_softmax():
    logits = torch.tensor([1.0, 3.0, 2.0, -1.0])
    draws = draw_token(logits.expand(50_000, 4), 0.5, None, generator())
    found = torch.bincount(draws[:, 0], minlength=4) / 50_000
    torch.testing.assert_close(found, (logits / 0.5).softmax(0), rtol=0, atol=0.01)
    best_two = draw_token(logits.expand(1000, 4), 5.0, 2, generator())
    assert best_two.unique().tolist() == [1, 2]
    for cold in (0, 1e-300, 1e-40, 1e-20):  # without an infinite quotient on the way
        assert draw_token(logits.expand(3, 4), cold, 2, generator()).tolist() == [[1]] * 3


def test_stdout_has_the_text_alone_and_stderr_the_facts(run, out_dir):
    code, out, err = run(out_dir, "start=ROMEO:", "num_samples=2", "max_new_tokens=30")
    assert code == 0
    first, second, rest = out.split(SEPARATOR)
    assert first.startswith("ROMEO:") and len(first) == len(second) == len("ROMEO:") + 30
    assert first != second and rest == ""
    assert "iteration 20, val loss 1.2500" in err and "stand-in" in err
    assert "cpu, float32, attention auto" in err and "60 tokens in" in err and "tokens/s" in err


def test_a_sample_depends_on_its_seed_alone(run, out_dir):
    three = run(out_dir, "num_samples=3", "seed=7", "max_new_tokens=40")[1].split(SEPARATOR)
    again = run(out_dir, "--num_samples=3", "--seed=7", "--max_new_tokens=40")[1]
    assert again.split(SEPARATOR) == three
    last = run(out_dir, "num_samples=1", "seed=9", "max_new_tokens=40")[1]
    assert last.split(SEPARATOR)[0] == three[2]


def test_backslash_n_is_a_new_line_and_a_file_stands_as_it_is(run, out_dir, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_bytes(b"\xef\xbb\xbfTo be,\r\nor not\n")  # byte-order mark, as editors write it
    typed = run(out_dir, "start=To be,\\nor not\\n", "num_samples=1", "max_new_tokens=9")[1]
    from_file = run(out_dir, f"start=FILE:{prompt}", "num_samples=1", "max_new_tokens=9")[1]
    assert typed == from_file and typed.startswith("To be,\nor not\n")


def test_of_a_long_prompt_the_last_block_counts(run, out_dir):
    keys = [out_dir, "num_samples=1", "max_new_tokens=20"]
    prompt = "the quick answer, my lord, is not to be had"
    _, out, err = run(*keys, f"start={prompt}")
    assert f"start: {len(prompt)} tokens, the model sees the last {BLOCK_SIZE}" in err
    _, short, err = run(*keys, f"start={prompt[-BLOCK_SIZE:]}")
    assert out.endswith(short) and out.startswith(prompt) and "the last" not in err


def test_bytes_of_a_character_come_together():
    text = "Grüße, 世界! \U0001f600"
    tokenizer = BpeTokenizer.train(TEXT, 256)  # a token for each byte
    ids = tokenizer.encode(text).tolist()
    pieces = list(program.texts(ids[:3], iter(ids[3:]), tokenizer))
    assert pieces[0] == "Gr" and "\ufffd" not in "".join(pieces) == text
    half = list(program.texts(ids[:3], iter([]), tokenizer))
    assert half == ["Gr", "\ufffd"]


def test_bpe_checkpoint(run, tmp_path):
    out_dir = write_checkpoint(tmp_path, BpeTokenizer.train(TEXT, 300))
    code, out, err = run(out_dir, "start=Ça va?\\n", "num_samples=1", "max_new_tokens=40")
    assert code == 0 and out.startswith("Ça va?\n") and out.endswith(SEPARATOR), err


def test_attention_of_the_checkpoint_that_does_not_exist_here(run, tmp_path, out_dir):
    trained_with_cudnn = write_checkpoint(tmp_path, CharTokenizer(TEXT), "cudnn")
    keys = ["num_samples=1", "max_new_tokens=20"]
    code, out, err = run(trained_with_cudnn, *keys)
    assert code == 0 and "attention=cudnn" in err and "Sampling with attention=auto" in err
    assert out == run(out_dir, *keys)[1]
    code, out, err = run(trained_with_cudnn, *keys, "attention=cudnn")
    assert (code, out) == (2, "") and "attention=cudnn: exists on CUDA only" in err


def test_what_was_trained_with_our_own_kernels_is_sampled_without_them(run, tmp_path, out_dir):
    fused = write_checkpoint(tmp_path, CharTokenizer(TEXT), kernels="fused")
    keys = ["num_samples=1", "max_new_tokens=20"]
    code, out, err = run(fused, *keys)
    assert code == 0 and out == run(out_dir, *keys)[1], err


@pytest.mark.parametrize("attention", ON_CPU)
def test_a_checkpoint_loads_under_every_backend(run, out_dir, attention):
    keys = [out_dir, "temperature=0", "num_samples=1", "max_new_tokens=30"]
    code, out, err = run(*keys, f"attention={attention}")
    assert code == 0 and f"attention {attention}\n" in err
    assert out == run(*keys)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["start=RO~EO"], "start: character '~' (U+007E) at index 2"),
        (["start="], "start: empty"),
        (["start=FILE:no/such.txt"], "start=FILE:no/such.txt: No such file"),
        (["out_dir=no/such"], "no/such/ckpt.pt: no checkpoint"),
        (["temperature=-1"], "temperature=-1.0: must be"),
        (["temperature=nan"], "temperature=nan: must be"),
        (["top_k=0"], "top_k=0: must be at least 1"),
        (["num_samples=0"], "num_samples=0: must be at least 1"),
        (["max_new_tokens=-1"], "max_new_tokens=-1: must be at least 0"),
        (["max_new_tokens=many"], "max_new_tokens=many: must be a whole number"),
        (["seed=-1"], "seed=-1: must be"),
        (["device=tpu"], "device=tpu: must be"),
        (["dtype=float16"], "dtype=float16: needs a CUDA GPU"),
        (["attention=flsh"], "did you mean flash"),
        (["tempreature=1"], "did you mean temperature"),
        (["ROMEO"], "ROMEO: write key=value"),
    ],
)
def test_a_mistake_is_told_in_one_line(run, out_dir, arguments, message):
    code, out, err = run(out_dir, *arguments)
    last = err.splitlines()[-1]
    assert (code, out) == (2, "") and last.startswith("sample.py: error: ") and message in last
    assert "Traceback" not in err


def test_files_that_are_no_text_or_empty(run, out_dir, tmp_path):
    for name, content, message in (
        ("latin1", b"caf\xe9", "not UTF-8 (byte 3 is 0xe9)"),
        ("empty", b"", "empty"),
        ("tilde", b"a\n~", "character '~' (U+007E) at index 2 (line 2, column 1)"),
    ):
        (tmp_path / name).write_bytes(content)
        code, out, err = run(out_dir, f"start=FILE:{tmp_path / name}")
        assert (code, out) == (2, "") and f"start=FILE:{tmp_path / name}: {message}" in err


def test_damaged_checkpoints(run, out_dir, tmp_path):
    whole = Path(out_dir.removeprefix("out_dir="), "ckpt.pt").read_bytes()
    broken = tmp_path / "ckpt.pt"
    for content in (b"", b"no checkpoint", whole[: len(whole) // 2]):
        broken.write_bytes(content)
        code, out, err = run(f"out_dir={tmp_path}")
        assert (code, out) == (2, "") and f"{broken}: damaged" in err and err.count("\n") == 1
    state = torch.load(Path(out_dir.removeprefix("out_dir="), "ckpt.pt"), weights_only=True)
    for change, message in (
        ({"config": {}}, "not a checkpoint of this program"),
        ({"config": state["config"] | {"n_embd": 64}}, "weights do not fit"),
        ({"tokenizer": {"kind": "char"}}, "not a checkpoint of this program"),
    ):
        checkpoint.write(broken, state | change)
        code, out, err = run(f"out_dir={tmp_path}")
        assert (code, out) == (2, "") and message in err and err.count("\n") == 1


def test_help_lists_every_key(run):
    code, out, _ = run("--help")
    assert code == 0 and "examples" in out and "start=\\n " in out
    assert all(f"  {key}=" in out for key in asdict(program.SampleConfig()))


def shell(command: str) -> subprocess.Popen:
    environment = os.environ | {"PYTHON": sys.executable, "PYTHONIOENCODING": "utf-8"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=PROJECT,
        env=environment,
        stdout=pipe,
        stderr=pipe,
    )


@pytest.mark.slow
def test_text_comes_while_it_is_made_and_ctrl_c_ends_it(out_dir):
    process = shell(f'exec "$PYTHON" sample.py device=cpu {out_dir} max_new_tokens=100000000')
    try:
        assert len(os.read(process.stdout.fileno(), 10)) > 0
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and b"Traceback" not in err


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_it_quietly(out_dir):
    keys = f"device=cpu {out_dir} max_new_tokens=100000000"
    process = shell(f'"$PYTHON" sample.py {keys} | head -c 10')
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 141 and len(out) == 10  # of SIGPIPE, as pipefail has it
    assert b"Traceback" not in err and b"Broken" not in err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA GPU")
@pytest.mark.parametrize("attention", ["slow", "flash", "efficient", "math", "auto"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_graphs_write_the_text_of_the_eager_steps(attention, temperature):
    device = torch.device("cuda", torch.cuda.current_device())
    model = tiny_model(tiny(attention)).to(device, torch.bfloat16)
    idx = torch.zeros(1, 1, dtype=torch.long, device=device)
    graphed_generator = torch.Generator(device)
    cache = cache_for(model)
    graphed = GraphedDecode(decode_of(model, temperature, graphed_generator), graphed_generator)
    for seed in (0, 1, 2):  # eager, captured, replayed
        expected = tokens(model, idx, 40, temperature=temperature, seed=seed)
        graphed_generator.manual_seed(seed)
        new = model.generate(idx, 40, cache, graphed)
        assert [token.item() for token in new] == expected
    assert len(graphed.graphs) == BLOCK_SIZE and all(graphed.graphs.values())
