"""nanoGPT's ckpt.pt: its logits are kept, its tokens found, and a resume from it refused."""

import logging
import sys
from pathlib import Path

import pytest
import torch

import sample as program
from cli.help import read_keys
from configs.sampling import HELP, SampleConfig
from configs.schema import Config
from data.tokenizers import GPT2_TOKENS
from kernels.fused_model import make_model
from tests.helpers.gpt2 import logits_of
from tests.helpers.nanogpt import reference_logits, write_nanogpt_checkpoint
from tests.helpers.token_folders import CHARACTERS, write_meta
from training.disk.checkpoint_file import read_checkpoint
from training.disk.same_run import check_keys
from training.disk.whole_checkpoint import load

TOKENS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 28, 0])


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout of nanoGPT, with the characters of its data set `mine`."""
    folder = tmp_path / "nanoGPT"
    (folder / "data" / "mine").mkdir(parents=True)
    write_meta(folder / "data" / "mine")
    return folder


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prefix, masks", [("", False), ("_orig_mod.", True)])
def test_the_logits_are_those_of_its_weights(checkout, bias, prefix, masks):
    path = checkout / "out" / "ckpt.pt"
    weights = write_nanogpt_checkpoint(path, bias=bias, prefix=prefix, masks=masks)
    saved = load(path)
    assert saved.iteration == 250 and saved.best_val_loss == 1.5
    assert saved.tokenizer.decode(TOKENS) == "".join(CHARACTERS[token] for token in TOKENS)
    model = make_model(saved.model_config, saved.tokenizer.vocab_size).eval()
    model.load_state_dict(saved.weights)
    torch.testing.assert_close(
        logits_of(model, TOKENS[None])[0], reference_logits(weights, TOKENS), rtol=1e-4, atol=1e-4
    )


def test_without_meta_pkl_tokens_are_gpt2s_and_rows_that_fill_up_go(checkout):
    path = checkout / "out" / "ckpt.pt"
    weights = write_nanogpt_checkpoint(path, vocab_size=50304, dataset="openwebtext")
    saved = load(path)
    assert saved.tokenizer.kind == "gpt2" and saved.tokenizer.vocab_size == GPT2_TOKENS + 1
    for name in ("lm_head.weight", "transformer.wte.weight"):
        torch.testing.assert_close(saved.weights[name], weights[name][: GPT2_TOKENS + 1])


def test_characters_without_their_meta_pkl_are_refused(checkout):
    path = checkout / "out" / "ckpt.pt"
    write_nanogpt_checkpoint(path, dataset="gone")
    with pytest.raises(ValueError, match=r"^[^\n]*nanoGPT's.* 29 tokens.*meta.pkl.*copy it to"):
        read_checkpoint(path)
    write_meta(path.parent)
    assert read_checkpoint(path).tokenizer.vocab_size == len(CHARACTERS)


def test_a_resume_is_refused_with_what_to_do(checkout):
    write_nanogpt_checkpoint(checkout / "out" / "ckpt.pt")
    config = Config(out_dir=str(checkout / "out"), init_from="resume")
    with pytest.raises(
        ValueError, match=r"ckpt.pt: is a checkpoint of nanoGPT.*training.export.*weights=FOLDER"
    ):
        check_keys(read_checkpoint(checkout / "out" / "ckpt.pt", at_a_glance=True), config)


@pytest.mark.parametrize("entry", ["model", "model_args", "config", "iter_num", "best_val_loss"])
def test_an_entry_of_another_kind_is_one_line(checkout, entry):
    path = checkout / "out" / "ckpt.pt"
    write_nanogpt_checkpoint(path)
    state = torch.load(path, weights_only=True)
    for wrong in ({}, "x", None):
        torch.save({**state, entry: wrong}, path)
        with pytest.raises(ValueError, match=r"^[^\n]*ckpt.pt: [^\n]+$"):
            read_checkpoint(path)


@pytest.mark.parametrize("compile", ["False", "True"])
def test_sample_reads_it_and_says_that_compile_has_no_effect(
    checkout, compile, monkeypatch, capsys
):
    monkeypatch.setattr(logging.root, "handlers", [])
    write_nanogpt_checkpoint(checkout / "out" / "ckpt.pt")
    words = [f"--out_dir={checkout / 'out'}", f"--compile={compile}", "--device=cpu"]
    words += ["--start=a", "--num_samples=1", "--max_new_tokens=5"]
    monkeypatch.setattr(sys, "argv", ["sample.py", *words])
    program.main(read_keys(HELP, SampleConfig))
    out, err = capsys.readouterr()
    assert len(out.partition("\n---------------\n")[0]) == 6
    assert err.count(f"compile={compile.lower()}: no effect, because") == 1
