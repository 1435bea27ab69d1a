"""recipe=NAME: flat keys between the file of an experiment and the command line."""

from pathlib import Path

import pytest
import torch

from cli.keys import keys
from configs import files
from configs.completion import completions
from configs.compose import compose_jobs
from configs.recipes import name_recipe_in_errors, with_recipe_name
from configs.schema import Config
from train import train
from training.machine.device import decide

MAIN = files.find("shakespeare_char")
FAST = files.load(files.FOLDER / "recipe" / "fast.yaml")


def composed(path: Path | None, *words: str) -> Config:
    (config,) = compose_jobs(path, list(words), multirun=False)
    return config


def test_nanogpt_changes_nothing():
    assert files.load(files.FOLDER / "recipe" / "nanogpt.yaml") == {}
    assert composed(MAIN, "recipe=nanogpt") == composed(MAIN) == Config()


def test_fast_lies_over_the_file_and_below_the_command_line(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("optimizer: adamw\nn_layer: 2\nlearning_rate: 2e-4\n")
    assert FAST["optimizer"] == "muon" and "n_layer" not in FAST
    assert set(FAST) <= set(keys(Config))
    for path in (None, MAIN, mine):
        config = composed(path, "recipe=fast")
        expected = {k: FAST["max_iters"] if v == "${max_iters}" else v for k, v in FAST.items()}
        assert {key: getattr(config, key) for key in FAST} == expected
        assert config.n_layer == (2 if path == mine else 6)
    for words in (["recipe=fast", "optimizer=adamw"], ["optimizer=adamw", "recipe=fast"]):
        config = composed(mine, *words)
        assert config.optimizer == "adamw" and config.positions == FAST["positions"]


def test_a_run_of_another_length_decays_over_all_of_it():
    config = composed(MAIN, "recipe=fast", "max_iters=77")
    assert (config.max_iters, config.lr_decay_iters, config.eval_interval) == (77, 77, 77)


def test_on_a_cpu_it_says_which_keys_to_set(text_file, tmp_path):
    words = ["recipe=fast", "device=cpu", f"data_source={text_file}", f"out_dir={tmp_path}/out"]
    for more, told in (
        ([], "attention=triton: runs only on CUDA, but this run is on cpu; use slow, math, flash"),
        (["attention=flash"], "kernels=fused: runs only on CUDA, .*; use kernels=compiled"),
    ):
        with pytest.raises(ValueError, match=f"^{told}"):
            train(composed(MAIN, *words, *more))
    config = composed(MAIN, *words, "kernels=compiled", "attention=flash")
    assert decide(config, torch.device("cpu"), 1)["cuda_graphs"].value == "false"


def test_a_sweep_compares_them_each_in_its_folder():
    plain, fast = compose_jobs(MAIN, ["recipe=nanogpt,fast", "out_dir=x"], multirun=True)
    assert (plain.optimizer, fast.optimizer) == ("adamw", "muon")
    assert (plain.out_dir, fast.out_dir) == ("x/recipe=nanogpt", "x/recipe=fast")


def test_a_file_may_choose_one_in_its_list_of_defaults(tmp_path):
    mine = tmp_path / "mine.yaml"
    for entry in ("recipe: fast", "override profile: torch"):
        mine.write_text(f"defaults: [{{{entry}}}]\nn_layer: 2\n")
        config = composed(mine)
        assert config.n_layer == 2
        assert config.optimizer == ("muon" if "fast" in entry else "adamw")
    assert config.profile.kind == "torch"
    assert composed(mine, "recipe=fast").optimizer == "muon"


def test_a_finished_run_s_file_has_its_keys_and_needs_no_recipe(tmp_path):
    mine = tmp_path / "config.yaml"
    mine.write_text("optimizer: muon\n")
    assert composed(mine).optimizer == "muon"


@pytest.mark.parametrize(
    "word, said",
    [("recipe=fats", "recipe=fats: no such choice; did you mean fast"), ("recipe.x=1", "recipe")],
)
def test_what_there_is_not_is_refused(word, said):
    with pytest.raises(ValueError, match=said):
        composed(MAIN, word)


def test_tab_offers_them():
    assert completions("recipe=", Config()) == ["recipe=fast", "recipe=nanogpt"]


@pytest.mark.parametrize(
    ("words", "mistake", "told"),
    [
        (["recipe=fast"], "kernels=fused: no", "recipe=fast sets kernels=fused: no"),
        (["recipe=nanogpt,fast"], "kernels=fused: no", "recipe=fast sets kernels=fused: no"),
        (["recipe=fast"], "job 1 of 2 (o/x): kernels=fused: no", None),
        (["recipe=fast", "kernels=fused"], "kernels=fused: no", "kernels=fused: no"),
        (["kernels=fused"], "kernels=fused: no", "kernels=fused: no"),
        (["recipe=fast"], "n_layer=0: no", "n_layer=0: no"),
    ],
)
def test_a_mistake_names_the_recipe_that_sets_its_key(words, mistake, told):
    told = told or "job 1 of 2 (o/x): recipe=fast sets kernels=fused: no"
    assert with_recipe_name(mistake, words) == told


def test_on_a_cpu_the_refusal_names_what_was_typed(text_file, tmp_path):
    words = ["recipe=fast", "device=cpu", f"data_source={text_file}", f"out_dir={tmp_path}/out"]
    with (
        pytest.raises(ValueError, match="^recipe=fast sets attention=triton: runs only on CUDA"),
        name_recipe_in_errors(words),
    ):
        train(composed(MAIN, *words))
