"""GPT-2's weights: their layout, logits as transformers computes them, refusals, export."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import model
import sample as program
from cli.help import read_keys
from configs.export import HELP, ExportConfig
from configs.gpt2 import shape_of
from configs.model import ModelConfig
from configs.sampling import SampleConfig
from kernels.fused_model import make_model
from model import GPT
from tests.helpers.full_disk import files_no_larger_than
from tests.helpers.gpt2 import (
    ACTIVATIONS,
    LOGITS,
    TOKENS,
    VOCAB,
    logits_of,
    tiny_config,
    tiny_gpt2,
    vocabulary,
    waves,
)
from tests.helpers.mlps import SiLU, SwiGLU
from training import export
from training.disk.gpt2 import find_weights, load, to_transformers, write
from training.ranks.next_commands import load_command

TOLERANCE = 1e-4
NO_TRANSFORMERS = "transformers is not installed; tests/goldens/gpt2/logits.json stands for it"
Change = Callable[[dict[str, Tensor]], None]


@pytest.fixture(autouse=True)
def an_empty_cache(monkeypatch, tmp_path) -> Path:
    folder = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def exported(tmp_path) -> Path:
    """A folder as transformers' save_pretrained leaves it, and as we do."""
    config = tiny_config()
    write(tmp_path / "weights", waves(config), config, has_gpt2_s=False)
    return tmp_path / "weights"


def loaded(folder: Path, **keys) -> GPT:
    """The model that init_from=weights makes of them."""
    config = ModelConfig(dropout=0.0, **{**shape_of("weights", str(folder)), **keys})
    weights, vocab_size = load(find_weights("weights", str(folder)), config)
    model = make_model(config, vocab_size).eval()
    model.load_state_dict(weights)
    return model


def saved_again(folder: Path, change: Change) -> None:
    """The file of the folder with its tensors changed."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")


# Parity


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_logits_are_those_that_transformers_computed(activation):
    frozen = {name: torch.tensor(json.loads(LOGITS.read_text())[name]) for name in ACTIVATIONS}
    ours = logits_of(tiny_gpt2(tiny_config(activation)), torch.tensor(TOKENS))
    torch.testing.assert_close(ours, frozen[activation], rtol=0, atol=TOLERANCE / 3)
    other = frozen[{"gelu": "gelu_tanh", "gelu_tanh": "gelu"}[activation]]
    assert (ours - other).abs().max() > 3 * TOLERANCE  # so that it tells the two apart


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [{}, dict(vocab_size=131, n_positions=32, n_embd=48, n_layer=3, n_head=4)]
)
def test_a_model_of_transformers_is_read_and_written(tmp_path, shape):
    """Takes GPT-2's own 124 million parameters, and a small model with all of them far from the
    usual."""
    transformers = pytest.importorskip("transformers", reason=NO_TRANSFORMERS)
    torch.manual_seed(7)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).eval()
    for parameter in theirs.parameters() if shape else ():
        parameter.data.normal_(std=0.2)
    theirs.save_pretrained(tmp_path / "theirs")
    model = loaded(tmp_path / "theirs")
    tokens = torch.randint(model.lm_head.out_features, (2, min(model.config.block_size, 256)))
    ours = logits_of(model, tokens)
    with torch.no_grad():
        torch.testing.assert_close(ours, theirs(tokens).logits, rtol=0, atol=TOLERANCE)
    write(tmp_path / "ours", model.state_dict(), model.config, has_gpt2_s=not shape)
    again, said = transformers.GPT2LMHeadModel.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(said.values())
    assert all(
        torch.equal(a, b) for a, b in zip(again.parameters(), theirs.parameters(), strict=True)
    )


@pytest.mark.parametrize("keys", [dict(bias=False), dict(activation="gelu")])
def test_transformers_reads_what_nanogpt_s_model_is(tmp_path, keys):
    """A model without biases, and one with the exact GELU."""
    transformers = pytest.importorskip("transformers", reason=NO_TRANSFORMERS)
    config = tiny_config(**keys)
    write(tmp_path, waves(config), config, has_gpt2_s=False)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    tokens = torch.tensor(TOKENS)
    with torch.no_grad():
        there = theirs(tokens).logits
    torch.testing.assert_close(logits_of(tiny_gpt2(config), tokens), there, rtol=0, atol=TOLERANCE)


# Layout


def test_what_is_exported_is_read_back_bit_by_bit(exported):
    ours, again = waves(tiny_config()), loaded(exported).state_dict()
    assert list(again) == list(ours)
    assert all(torch.equal(again[name], ours[name]) for name in ours)


def test_missing_biases_are_zeros_in_the_file(tmp_path):
    config = tiny_config(bias=False)
    write(tmp_path, waves(config), config, has_gpt2_s=False)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert names == set(to_transformers(waves(tiny_config())))
    tokens = torch.tensor(TOKENS)
    ours = logits_of(tiny_gpt2(config), tokens)
    torch.testing.assert_close(logits_of(loaded(tmp_path), tokens), ours, rtol=0, atol=1e-5)


def refuse_to_write(folder: Path, config: ModelConfig, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}"):
        write(folder, waves(config), config, has_gpt2_s=False)
    assert not folder.exists()


def test_a_model_that_transformers_has_not_is_not_written(tmp_path):
    rotary, relu = tiny_config(positions="rotary"), tiny_config()
    refuse_to_write(
        tmp_path / "a", rotary, "positions=rotary: transformers' GPT-2 has learned alone"
    )
    relu.activation = "relu"  # as if the key had this choice
    refuse_to_write(tmp_path / "b", relu, "activation=relu: transformers' GPT-2 has gelu.* alone")


def test_a_changed_mlp_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "MLP", SwiGLU)
    why = "this model cannot be written as transformers' GPT-2: "
    absent = r"transformer\.h\.0\.mlp\.w1\.weight is \(72, 24\) here, and absent there"
    refuse_to_write(tmp_path / "a", tiny_config(), why + absent)
    monkeypatch.setattr(model, "MLP", SiLU)
    refuse_to_write(tmp_path / "b", tiny_config(), why + "its MLP computes something else")


def without_prefix(tensors: dict[str, Tensor]) -> None:
    for name in list(tensors):
        tensors[name.removeprefix("transformer.")] = tensors.pop(name)


def with_masks_and_head(tensors: dict[str, Tensor]) -> None:
    """Adds the masks and the head's weight, as older files have them."""
    for layer in range(2):
        tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 12, 12).tril()
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()


@pytest.mark.parametrize("change", [without_prefix, with_masks_and_head])
def test_other_spellings_of_the_same_file(exported, change):
    before = loaded(exported).state_dict()
    saved_again(exported, change)
    after = loaded(exported).state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_half_precision_becomes_float32(exported):
    before = loaded(exported).state_dict()
    saved_again(exported, lambda t: t.update({n: w.bfloat16() for n, w in t.items()}))
    after = loaded(exported).state_dict()
    assert all(torch.equal(after[name], before[name].bfloat16().float()) for name in before)


def test_a_file_in_parts(exported):
    before = loaded(exported).state_dict()
    tensors = load_file(exported / "model.safetensors")
    (exported / "model.safetensors").unlink()
    for part, names in enumerate((list(tensors)[::2], list(tensors)[1::2]), start=1):
        path = exported / f"model-{part:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names}, path)
    after = loaded(exported).state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    path.unlink()
    with pytest.raises(ValueError, match=f"^{exported}.*: not the weights of this GPT-2: "):
        loaded(exported)


def test_a_shorter_context_cuts_the_positions(exported):
    whole, cut = loaded(exported), loaded(exported, block_size=5)
    assert cut.transformer.wpe.weight.shape == (5, 24)
    tokens = torch.tensor(TOKENS)[:, :5]
    assert torch.equal(logits_of(cut, tokens), logits_of(whole, tokens))


# Vocabulary


@pytest.mark.parametrize("vocab_size", [50_257, 64])
def test_a_padded_vocabulary_changes_no_loss_and_no_gradient(monkeypatch, vocab_size):
    """The head's product has a multiple of 64 columns in training on CUDA; here it is told so."""
    config = tiny_config(n_layer=1, n_embd=6)
    tokens = torch.randint(vocab_size, (2, 9), generator=torch.Generator().manual_seed(0))
    tokens[0, 0], widths, found = vocab_size - 1, [], []
    product = torch.nn.functional.linear

    def linear(x: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
        widths.append(len(weight))
        return product(x, weight, *bias)

    for padded in (False, True):
        model = tiny_gpt2(config, vocab_size).train()
        with monkeypatch.context() as patch:
            if padded:
                patch.setattr(Tensor, "is_cuda", True, raising=False)
                patch.setattr("model.F.linear", linear)
            logits, loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        found.append((logits, loss, *(p.grad for p in model.parameters())))
        assert len(model.state_dict()["lm_head.weight"]) == vocab_size
    assert logits.shape[-1] == vocab_size and widths[-1] == -(-vocab_size // 64) * 64
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-7)


# Refusals


def deeper(tensors: dict[str, Tensor]) -> None:
    tensors |= {n.replace("h.1", "h.2"): w.clone() for n, w in tensors.items() if "h.1." in n}


def untied(tensors: dict[str, Tensor]) -> None:
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1


def entry(name: str, value: Tensor | None) -> Change:
    def put(tensors: dict[str, Tensor]) -> None:
        tensors.pop(name, None)
        tensors |= {} if value is None else {name: value}

    return put


WRONG = {
    "another depth": (deeper, "n_layer=2, but the file has weights of 3 blocks"),
    "another width": (
        entry("transformer.h.0.mlp.c_fc.weight", torch.zeros(24, 95)),
        "transformer.h.0.mlp.c_fc.weight is (95, 24), not (96, 24)",
    ),
    "not transposed": (
        entry("transformer.h.0.mlp.c_fc.weight", torch.zeros(96, 24)),
        "transformer.h.0.mlp.c_fc.weight is (24, 96), not (96, 24)",
    ),
    "too few positions": (
        entry("transformer.wpe.weight", torch.zeros(4, 24)),
        "wte.weight is (29, 24) and wpe.weight (4, 24), for block_size=12",
    ),
    "no embedding": (entry("transformer.wte.weight", None), "lacks 'wte.weight'"),
    "a bias is missing": (
        entry("transformer.h.1.ln_2.bias", None),
        "has no transformer.h.1.ln_2.bias",
    ),
    "a tensor too many": (
        entry("transformer.h.1.crossattention.q_attn.weight", torch.zeros(3)),
        "has an unknown transformer.h.1.crossattention.q_attn.weight",
    ),
    "a head of its own": (untied, "lm_head.weight is not the embedding"),
    "whole numbers": (
        entry("transformer.ln_f.bias", torch.zeros(24, dtype=torch.int64)),
        "transformer.ln_f.bias has dtype torch.int64",
    ),
    "nan in the embedding, which is the head": (
        entry("transformer.wte.weight", torch.full((29, 24), float("nan"))),
        "wte.weight has values that are not finite",
    ),
    "nan": (
        entry("transformer.ln_f.bias", torch.full((24,), float("nan"))),
        "transformer.ln_f.bias has values that are not finite",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_weights_that_do_not_fit_are_one_line(exported, case):
    change, said = WRONG[case]
    saved_again(exported, change)
    with pytest.raises(ValueError) as refusal:
        loaded(exported)
    message = str(refusal.value)
    assert message.startswith(f"{exported / 'model.safetensors'}: not the weights of this GPT-2: ")
    assert said in message and "\n" not in message


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_file_is_one_line(exported, kept):
    path = exported / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="damaged or not a safetensors") as refusal:
        loaded(exported)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_pickle_is_not_opened(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "load", None)
    pickle = tmp_path / "pytorch_model.bin"
    torch.save({}, pickle)
    for path in (pickle, tmp_path):
        with pytest.raises(ValueError, match="pytorch_model.bin is a pickle, .* not opened; give"):
            find_weights("gpt2", str(path))
    shutil.copy(pickle, exported / "model.safetensors")  # under a name that is not its own
    with pytest.raises(ValueError, match="damaged or not a safetensors"):
        loaded(exported)


@pytest.mark.parametrize(
    "name, said",
    [
        ("nowhere", "no such file or folder"),
        ("nowhere.safetensors", "no such file"),
        ("empty", "contains no model.safetensors"),
        ("text.md", "is not a .safetensors file"),
    ],
)
def test_a_path_without_weights_is_one_line(tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.md").touch()
    with pytest.raises(ValueError) as refusal:
        find_weights("gpt2", str(tmp_path / name))
    assert str(refusal.value) == f"weights={tmp_path / name}: {said}"


def test_weights_that_are_in_no_cache_name_the_place_and_the_download(an_empty_cache):
    with pytest.raises(ValueError) as refusal:
        find_weights("gpt2_xl", None)
    assert f"cache, {an_empty_cache}; download them with hf download" in str(refusal.value)
    assert "openai-community/gpt2-xl model.safetensors" in str(refusal.value)


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"model_type": "llama"}, "not the configuration of a GPT-2"),
        ({"n_layer": None}, "n_layer=null is not a whole number"),
        ({"n_embd": "24"}, "n_embd=24 is not a whole number"),
        ({"n_inner": 97}, "n_inner=97 is not supported"),
        ({"activation_function": "relu"}, "has missing or unknown values: 'relu'"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon=1e-06 is not supported, only 1e-05"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=true is not"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=false is not supported"),
    ],
)
def test_another_kind_of_gpt2_is_refused(exported, keys, said):
    path = exported / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    with pytest.raises(ValueError, match="cannot be used") as refusal:
        shape_of("weights", str(exported))
    assert str(refusal.value).startswith(f"{path}: ") and said in str(refusal.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 100_000, "\xff"])
def test_a_broken_config_json_is_one_line(exported, text):
    (exported / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=f"^{exported / 'config.json'}: cannot be used"):
        shape_of("weights", str(exported))
    (exported / "config.json").unlink()
    with pytest.raises(ValueError, match="^init_from=weights: .*config.json is missing"):
        shape_of("weights", str(exported))


# The programs


@pytest.fixture
def of_the_text(prepared, config, tmp_path) -> Path:
    """A folder with a GPT-2 of the characters of the tests' text."""
    vocab_size = prepared(config()).tokenizer.vocab_size
    made = tiny_config(n_embd=24, block_size=32)
    write(tmp_path / "chars", waves(made, vocab_size), made, has_gpt2_s=False)
    return tmp_path / "chars"


def begun(folder: Path) -> dict[str, object]:
    shape = shape_of("weights", str(folder))
    return dict(shape, init_from="weights", weights=str(folder), bias=True)


def test_training_begins_with_the_weights_and_resumes_without_them(
    run, losses, of_the_text, prepared, config
):
    keys = begun(of_the_text)
    out_dir = run(**keys, max_iters=4, always_save_checkpoint=True)
    dataset = prepared(config())
    model = tiny_gpt2(tiny_config(n_embd=24, block_size=32), dataset.tokenizer.vocab_size)
    ids = torch.from_numpy(dataset.tokens("val").read_all().astype("int64"))
    whole = len(ids[:-1]) // 32 * 32
    x, y = (each[:whole].view(-1, 32) for each in (ids[:-1], ids[1:]))
    with torch.no_grad():
        assert losses(out_dir)[0][1] == pytest.approx(model(x, y)[1].item(), rel=0.02)
    shutil.rmtree(of_the_text)
    keys["init_from"] = "resume"
    run(**keys, max_iters=8)
    with pytest.raises(ValueError, match="^activation=gelu: the checkpoint has gelu_tanh"):
        run(**{**keys, "activation": "gelu"}, max_iters=9)


def test_training_refuses_weights_of_other_tokens(run, exported):
    shape = shape_of("weights", str(exported))
    with pytest.raises(ValueError, match="^dataset=shakespeare_char: has .* tokenizer=gpt2$"):
        run(**shape, init_from="weights", weights=str(exported))
    with pytest.raises(ValueError, match="^init_from=gpt2: the weights are not in Hugging Face's"):
        run(init_from="gpt2")


def test_a_run_that_is_refused_leaves_the_earlier_one(run, exported):
    out_dir = run(max_iters=2)
    with pytest.raises(ValueError, match="tokenizer=gpt2"):
        run(**shape_of("weights", str(exported)), init_from="weights", weights=str(exported))
    assert (out_dir / "summary.json").exists() and not (out_dir / "previous-1").exists()


def test_a_checkpoint_is_exported_and_trained_on(run, of_the_text, tmp_path, capsys):
    out_dir = run(**begun(of_the_text), max_iters=4, always_save_checkpoint=True)
    folder = tmp_path / "a" / "b"
    capsys.readouterr()
    export.main(ExportConfig(out_dir=str(out_dir), folder=str(folder)))
    written, following = capsys.readouterr().out.splitlines()
    assert written.startswith(f"{folder / 'model.safetensors'}: ")
    assert following == f"next, where transformers is installed: {load_command(str(folder))}"
    state = torch.load(out_dir / "ckpt.pt", weights_only=True)["model"]
    again = loaded(folder).state_dict()
    assert all(torch.equal(again[name], state[name]) for name in state)
    said = json.loads((folder / "config.json").read_text())
    assert said["bos_token_id"] is None and said["vocab_size"] == len(state["lm_head.weight"])


def test_who_may_read_other_new_files_may_read_what_is_exported(exported):
    modes = {path.stat().st_mode for path in exported.iterdir()}
    assert len(modes) == 1, "of config.json and model.safetensors"


def test_export_says_what_is_missing_in_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        export.main(ExportConfig(out_dir=str(tmp_path)))
    assert ended.value.code == 2
    assert f"{tmp_path}/ckpt.pt: there is no checkpoint" in capsys.readouterr().err


def test_a_full_disk_costs_the_export_alone(tmp_path):
    """An export fails beside an earlier one, which stays."""
    config = tiny_config()
    write(tmp_path, waves(config), config, has_gpt2_s=False)
    before = (tmp_path / "model.safetensors").read_bytes()
    refused = pytest.raises(ValueError, match="model.safetensors: cannot be written: ")
    with files_no_larger_than(10_000), refused as refusal:
        write(tmp_path, waves(config), config, has_gpt2_s=False)
    assert "\n" not in str(refusal.value)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_export_s_keys_are_told(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["export.py", "--help"])
    with pytest.raises(SystemExit):
        read_keys(HELP, ExportConfig)
    assert "  folder=exported " in capsys.readouterr().out


@pytest.fixture
def few_tokens(monkeypatch, tmp_path) -> Path:
    """A GPT-2 of 300 tokens, in Hugging Face's cache as one of its sizes."""
    monkeypatch.setattr("training.disk.gpt2.GPT2_TOKENS", 299)
    monkeypatch.setattr("data.tokenizers.GPT2_TOKENS", 299)
    config = tiny_config()
    folder = tmp_path / "hub" / "models--gpt2" / "snapshots" / "1"
    write(folder, waves(config, 300), config, has_gpt2_s=True)
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [bytes([a, b]) for a in b"abcdefg" for b in b"tuvwxy"] + [b" t"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary(tokens)))
    monkeypatch.setattr("training.disk.gpt2.shape_of", lambda *_: shape_of("weights", str(folder)))
    return folder


def test_sampling_with_the_weights_of_the_cache(few_tokens, monkeypatch, capsys):
    words = ["device=cpu", "start=at", "num_samples=2", "max_new_tokens=20"]
    monkeypatch.setattr("sys.argv", ["sample.py", "init_from=gpt2", *words])
    program.main(read_keys("", SampleConfig))
    out, err = capsys.readouterr()
    assert out.startswith("at") and out.count("---") >= 2
    assert f"{few_tokens / 'model.safetensors'}: " in err


def test_weights_without_their_vocabulary_are_one_line(few_tokens, monkeypatch, capsys):
    def get_encoding(name: str):
        raise OSError("no network")

    monkeypatch.setattr("tiktoken.get_encoding", get_encoding)
    (few_tokens / "vocab.json").unlink()
    with pytest.raises(SystemExit) as ended:
        program.main(SampleConfig(init_from="gpt2", device="cpu"))
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and "could not be downloaded (OSError: no network)" in line
    assert f"{few_tokens}: " in line and line.endswith("put GPT-2's vocab.json into this folder")


def test_sampling_from_weights_of_other_tokens_is_one_line(exported, capsys):
    with pytest.raises(SystemExit) as ended:
        program.main(SampleConfig(init_from="weights", weights=str(exported), device="cpu"))
    assert ended.value.code == 2
    assert f"has {VOCAB} tokens, but only GPT-2's" in capsys.readouterr().err
