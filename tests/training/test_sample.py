import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sample as program
from cli.help import read_keys
from configs.backends import AUTO, TABLE
from configs.sampling import HELP, SampleConfig
from data.standin import stand_in_text
from data.tokenizers import BpeTokenizer, CharTokenizer, Gpt2Tokenizer
from model import GPT
from tests.helpers.checkpoints import BLOCK_SIZE, tiny, tiny_model, write_checkpoint
from tests.paths import PROJECT
from training.disk import checkpoint
from training.ranks.graph_pieces import capture_graph, kernels_of
from training.sampling.decode import KeyValueCache, read, try_own_kernels
from training.sampling.draw import draw_token, noise_for
from training.sampling.generation import (
    TOKENS_AHEAD,
    Arrivals,
    Replays,
    Writer,
    arrivals_of,
    run_directly,
)
from training.sampling.rehearsal import rehearse

TEXT = stand_in_text(length=20_000)
SLOW = {"flex": pytest.mark.slow}  # takes seconds on a CPU
ON_CPU = [
    *(
        pytest.param(each.name, marks=SLOW.get(each.name, ()))
        for each in TABLE
        if not each.cuda_only
    ),
    AUTO,
]
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


def tokens_of(
    writer: Writer, prompt: list[int], count: int, seed: int = 0, arrivals: Arrivals | None = None
) -> list[list[int]]:
    """Takes so many new tokens for each text of the writer."""
    writer.begin(prompt, seed)
    arrivals, rows = arrivals or arrivals_of(writer), [[] for _ in writer.context]
    for number in range(count + 1):
        if number < count:
            writer.step()
        arrived = arrivals.after_step() if number < count else arrivals.receive_all()
        for row, tokens in zip(rows, arrived, strict=True):
            row += tokens
    return rows


def tokens(model: GPT, prompt: list[int], count: int, temperature=0.0, seed=0) -> list[int]:
    return tokens_of(Writer(model, 1, temperature, None), prompt, count, seed)[0]


def drawn(logits: torch.Tensor, temperature: float, top_k: int | None, seed=0) -> torch.Tensor:
    """A token for each row of the logits."""
    noise = noise_for(temperature, 1, *logits.shape, logits.device)
    out = torch.zeros(len(logits), 1, dtype=torch.long)
    if noise:
        noise.seed(seed)
        noise.prepare()
    draw_token(logits, temperature, top_k, noise and noise.numbers[0], out)
    return out[:, 0]


def random_prompt(length: int) -> list[int]:
    return torch.randint(65, (length,), generator=generator()).tolist()


@pytest.mark.parametrize("round_to", [1, 6, 256])
@pytest.mark.parametrize("attention", ON_CPU)
@torch.no_grad()
def test_logits_with_the_cache_equal_those_without(attention, round_to):
    model = tiny_model(tiny(attention))
    idx = torch.randint(65, (2, BLOCK_SIZE), generator=generator())
    cache = KeyValueCache(model, 2, round_to)
    for prompt in (1, 5, BLOCK_SIZE - 1):
        cache.clear()
        with_cache = read(model, idx[:, :prompt], cache)
        for length in range(prompt, BLOCK_SIZE + 1):
            without = model(idx[:, :length])[0][:, -1]
            torch.testing.assert_close(with_cache, without, rtol=0, atol=1e-5)
            assert cache.length == cache.position.item() == length
            if not cache.full:
                with_cache = read(model, idx[:, length : length + 1], cache)


@pytest.mark.parametrize("round_to", [1, 6])
@torch.no_grad()
def test_rotary_positions_are_those_of_training(round_to):
    model = tiny_model(replace(tiny(), positions="rotary"))
    idx = torch.randint(65, (2, BLOCK_SIZE), generator=generator())
    cache = KeyValueCache(model, 2, round_to)
    with_cache = read(model, idx[:, :5], cache)
    for length in range(5, BLOCK_SIZE):
        torch.testing.assert_close(with_cache, model(idx[:, :length])[0][:, -1], atol=1e-5, rtol=0)
        with_cache = read(model, idx[:, length : length + 1], cache)


@torch.no_grad()
def test_biases_are_added():
    model = tiny_model(replace(tiny(), bias=True))
    for parameter in model.parameters():
        parameter.normal_(generator=generator())
    idx = torch.tensor([random_prompt(5)])
    cache = KeyValueCache(model, 1)
    read(model, idx[:, :4], cache)
    last = read(model, idx[:, 4:], cache)
    torch.testing.assert_close(last, model(idx)[0][:, -1], rtol=1e-4, atol=1e-4)


def test_without_triton_our_own_kernels_are_refused_in_one_line(monkeypatch):
    monkeypatch.delitem(sys.modules, "kernels.decoding.in_triton", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ValueError, match="triton") as refusal:
        try_own_kernels(tiny_model(tiny()), 2)
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ON_CPU)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("prompt", [1, BLOCK_SIZE, BLOCK_SIZE + 5])
@torch.no_grad()
def test_text_within_and_past_the_block_equals_a_loop_without_cache(attention, temperature, prompt):
    model = tiny_model(tiny(attention))
    draw = generator()
    expected = random_prompt(prompt)
    seen = min(prompt, BLOCK_SIZE)
    for _ in range(2 * BLOCK_SIZE):
        if seen > BLOCK_SIZE:
            seen = BLOCK_SIZE // 2
        logits, _ = model(torch.tensor([expected[-seen:]]))
        weights = logits[:, -1].div(temperature or 1e-9).softmax(-1)
        weights /= torch.empty_like(weights).exponential_(generator=draw)
        expected.append(weights.argmax().item())
        seen += 1
    assert tokens(model, expected[:prompt], 2 * BLOCK_SIZE, temperature) == expected[prompt:]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_text_of_a_batch_is_that_of_its_seed_alone(temperature):
    model = tiny_model(tiny())
    prompt = random_prompt(3)
    four = tokens_of(Writer(model, 4, temperature, 20), prompt, 40, seed=7)
    alone = Writer(model, 1, temperature, 20)
    assert four == [tokens_of(alone, prompt, 40, seed=7 + k)[0] for k in range(4)]
    assert (len(set(map(tuple, four))) == 1) == (temperature == 0)


def test_noise_of_a_sequence_does_not_depend_on_those_beside_it():
    both, second = (noise_for(1.0, batch, 3, 5, torch.device("cpu")) for batch in (2, 1))
    both.seed(8)
    second.seed(9)
    seen = []
    for _ in range(7):  # three at a time are drawn ahead
        both.prepare()
        second.prepare()
        seen.append(both.next())
        assert torch.equal(seen[-1][1:], second.next())
    assert torch.stack(seen).flatten().unique().numel() == 7 * 2 * 5


@pytest.mark.parametrize("attention", ON_CPU)
def test_keys_that_are_not_there_yet_change_no_text(attention):
    model = tiny_model(tiny(attention))
    rounded = Writer(model, 1, 1.0, None)
    rounded.cache = KeyValueCache(model, 1, 6)
    assert tokens_of(rounded, [5], 40) == [tokens(model, [5], 40, 1.0)]


@pytest.mark.parametrize(("every", "ahead"), [(5, 0), (5, 1), (40, 1), (1, 3)])
def test_tokens_arrive_in_pieces_and_in_order(every, ahead):
    model = tiny_model(tiny())
    writer = Writer(model, 2, 1.0, None)
    expected = tokens_of(writer, [5], 33)
    arrivals = Arrivals(writer, every, ahead)
    assert tokens_of(writer, [5], 33, arrivals=arrivals) == expected
    assert not arrivals.on_the_way


class Recorded(TorchDispatchMode):
    """Acts as a CUDA graph, on a CPU: the same operators, on the same memory, without Python."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for function, args, kwargs, before in self.calls:
            after = function(*args, **kwargs)
            for old, new in zip(tree_leaves(before), tree_leaves(after), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class RecordedReplays(Replays):
    def __init__(self, writer: Writer):
        self.graphs = {}
        held = [writer.context, writer.token, writer.cache.position, *writer.cache.layers]
        self.held = held + ([writer.noise.index] if writer.noise else [])

    def capture(self, work) -> Recorded:
        """A capture runs nothing."""
        before = [each.clone() for each in self.held]
        with Recorded() as graph:
            work()
        for each, old in zip(self.held, before, strict=True):
            each.copy_(old)
        return graph


@pytest.mark.parametrize("attention", ["slow", "math", "flash", "auto"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_replayed_finds_all_it_needs_on_the_device(attention, temperature):
    model = tiny_model(tiny(attention))
    expected = Writer(model, 2, temperature, 20)
    replayed = Writer(model, 2, temperature, 20)
    replayed.cache = KeyValueCache(model, 2, 6)
    replayed.run = RecordedReplays(replayed)
    for seed in (0, 1, 2):
        assert tokens_of(replayed, [0, 3], 40, seed) == tokens_of(expected, [0, 3], 40, seed)
    assert set(replayed.run.graphs) == {("prompt", 2), 6, 12, BLOCK_SIZE, "half"}
    assert all(replayed.run.graphs.values())


def test_what_a_writer_left_behind_changes_no_text():
    model = tiny_model(tiny())
    writer = Writer(model, 1, 1.0, None)
    first = tokens_of(writer, [0], 20)
    assert tokens_of(writer, [3, 1], 7) != first
    assert tokens_of(writer, [0], 20) == first == [tokens(model, [0], 20, 1.0)]


def test_draws_have_the_probabilities_of_the_softmax():
    logits = torch.tensor([1.0, 3.0, 2.0, -1.0])
    found = torch.bincount(drawn(logits.expand(50_000, 4), 0.5, None), minlength=4) / 50_000
    torch.testing.assert_close(found, (logits / 0.5).softmax(0), rtol=0, atol=0.01)
    best_two = drawn(logits.expand(1000, 4), 5.0, 2)
    assert best_two.unique().tolist() == [1, 2]
    for cold in (0, 1e-300, 1e-40, 1e-20):  # without an infinite quotient on the way
        assert drawn(logits.expand(3, 4), cold, 2).tolist() == [1] * 3


def test_stdout_has_the_text_alone_and_stderr_the_facts(run, out_dir):
    code, out, err = run(out_dir, "start=ROMEO:", "num_samples=2", "max_new_tokens=30")
    assert code == 0
    first, second, rest = out.split(SEPARATOR)
    assert first.startswith("ROMEO:") and len(first) == len(second) == len("ROMEO:") + 30
    assert first != second and rest == ""
    assert "iteration 20, val loss 1.2500" in err and "substitute" in err
    assert "cpu, float32, attention auto" in err and "60 tokens in" in err and "tokens/s" in err


def test_a_sample_depends_on_its_seed_alone(run, out_dir):
    three = run(out_dir, "num_samples=3", "seed=7", "max_new_tokens=40")[1].split(SEPARATOR)
    again = run(out_dir, "--num_samples=3", "--seed=7", "--max_new_tokens=40")[1]
    assert again.split(SEPARATOR) == three
    last = run(out_dir, "num_samples=1", "seed=9", "max_new_tokens=40")[1]
    assert last.split(SEPARATOR)[0] == three[2]


@pytest.mark.parametrize("batch_size", [2, 3, 64])
def test_texts_drawn_at_once_are_those_drawn_one_by_one(run, out_dir, batch_size):
    keys = [out_dir, "num_samples=3", "max_new_tokens=40"]
    code, out, err = run(*keys, f"batch_size={batch_size}")
    assert code == 0 and out == run(*keys)[1] and "120 tokens in" in err


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
    assert f"start: {len(prompt)} tokens, of which the model sees only the last {BLOCK_SIZE}" in err
    _, short, err = run(*keys, f"start={prompt[-BLOCK_SIZE:]}")
    assert out.endswith(short) and out.startswith(prompt) and "the last" not in err


def test_bytes_of_a_character_come_together():
    text = "Grüße, 世界! \U0001f600"
    tokenizer = BpeTokenizer.train(TEXT, 256)  # a token for each byte
    ids = tokenizer.encode(text).tolist()
    pieces = list(program.texts(ids[:3], ([each] for each in ids[3:]), tokenizer))
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
    assert code == 0 and "attention=cudnn" in err and "Sampling uses attention=auto" in err
    assert out == run(out_dir, *keys)[1]
    code, out, err = run(trained_with_cudnn, *keys, "attention=cudnn")
    assert (code, out) == (2, "") and "attention=cudnn: runs only on CUDA" in err


@pytest.mark.slow
def test_what_would_be_compiled_first_is_used_where_it_is_asked_for(run, tmp_path):
    keys = [write_checkpoint(tmp_path, CharTokenizer(TEXT), "flex"), "max_new_tokens=2"]
    err = run(*keys)[2]
    assert "attention=flex would compile" in err and "float32, attention auto" in err
    assert "float32, attention flex" in run(*keys, "attention=flex")[2]


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
        (["out_dir=no/such"], "no/such/ckpt.pt: there is no checkpoint"),
        (["temperature=-1"], "temperature=-1.0: must be"),
        (["temperature=nan"], "temperature=nan: must be"),
        (["top_k=0"], "top_k=0: must be at least 1"),
        (["batch_size=0"], "batch_size=0: must be at least 1"),
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


def on_gpu(attention: str, dtype: torch.dtype) -> GPT:
    """Makes a tiny model. With `own` its attention is `auto`, for the prompts: single tokens are
    read by our own kernels where the writer is told."""
    device = torch.device("cuda", torch.cuda.current_device())
    return tiny_model(tiny("auto" if attention == "own" else attention)).to(device, dtype)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA GPU")
@pytest.mark.parametrize("attention", ["slow", "flash", "efficient", "math", "auto", "own"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_graphs_write_the_text_of_the_eager_steps(attention, temperature):
    model = on_gpu(attention, torch.bfloat16)
    eager, graphed = (Writer(model, 2, temperature, 20, attention == "own") for _ in range(2))
    eager.run = run_directly
    for seed in (0, 1, 2):  # the prompt is eager, captured, replayed
        expected = tokens_of(eager, [0, 3], 3 * TOKENS_AHEAD, seed)
        assert tokens_of(graphed, [0, 3], 3 * TOKENS_AHEAD, seed) == expected
    assert set(graphed.run.graphs) == {("prompt", 2), BLOCK_SIZE, "half"}
    assert all(graphed.run.graphs.values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA GPU")
@pytest.mark.parametrize("attention", ["slow", "efficient", "math", "auto", "own"])
@torch.no_grad()
def test_on_a_gpu_keys_that_are_not_there_change_no_logits_and_no_text(attention):
    model = on_gpu(attention, torch.float32)
    writer = Writer(model, 3, 0.0, None, attention == "own")
    rows = tokens_of(writer, [5, 1], BLOCK_SIZE - 2)
    assert writer.end == BLOCK_SIZE
    logits = read(model, writer.token, writer.cache)
    without = model(writer.context[:, :BLOCK_SIZE])[0][:, -1]
    torch.testing.assert_close(logits, without, rtol=0, atol=1e-3)
    on_cpu = tiny_model(tiny("math"))
    on_cpu.load_state_dict(model.state_dict())
    assert rows == tokens_of(Writer(on_cpu, 3, 0.0, None), [5, 1], BLOCK_SIZE - 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA GPU")
@pytest.mark.parametrize(("own", "of_a_layer"), [(False, 11), (True, 7)])
def test_a_token_takes_few_kernels(own, of_a_layer):
    writer = Writer(on_gpu("auto", torch.bfloat16), 1, 1.0, None, own)
    tokens_of(writer, [5, 1], 5)
    names = kernels_of(capture_graph(writer.read_newest, torch.cuda.graph_pool_handle()))
    assert names is None or len(names) <= 2 * of_a_layer + 12, names
    ours = [name for name in names or [] if "_triton" in name]
    assert names is None or len(ours) == own * (2 * 3 + 2), names


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="sample.py rehearses on a CUDA GPU")
@pytest.mark.parametrize("rows", [1, 3])
def test_a_rehearsal_ends_well(rows):
    """A failure would cost time alone, and nobody would see it."""
    rehearse(torch.device("cuda", torch.cuda.current_device()), "bfloat16", rows)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="our own kernels need a CUDA GPU")
def test_our_own_kernels_read_single_tokens_where_the_switch_leaves_it_open():
    own = {
        attention: program.own_kernels_run(on_gpu(attention, torch.bfloat16), 3)
        for attention in ("auto", "flash", "math", "efficient", "slow")
    }
    assert own == dict(auto=True, flash=True, math=False, efficient=False, slow=False)


@pytest.mark.parametrize("tokenizer", [Gpt2Tokenizer(), CharTokenizer("<|endoftx>")])
def test_the_end_of_a_text_is_a_prompt_where_it_is_a_token(tokenizer):
    ids = program.encode_prompt("<|endoftext|>", tokenizer)
    assert ids == [50256] if isinstance(tokenizer, Gpt2Tokenizer) else len(ids) == 13
