"""Checks a checkpoint against the configuration that it is to be resumed with.

The model and the text may not differ. Keys that decide which sequences and which noise an iteration
sees, those of the work and the seed, may differ only with exact_resume=false. All other keys steer
or watch the run: a change of them is only logged.

Called by training.disk.run_folder for the keys, before a text is prepared that may not be the
checkpoint's, and by training.disk.checkpoint for keys and text.
"""

import shlex
from collections.abc import Mapping
from operator import attrgetter

from cli.keys import Value, keys, spell
from configs.schema import BEFORE, Config, role_of
from data.dataset import Dataset
from training.disk.checkpoint_file import AGAIN, Checkpoint

BATCH_KEYS = ("batch_size", "gradient_accumulation_steps")  # only their product counts


def changes(saved: Checkpoint, config: Config) -> list[tuple[str, Value, Value]]:
    """Flat keys that differ, as (key, value in the checkpoint, value now).

    Sections are left out, as they only watch a run, and keys of a start or a place. A key that is
    younger than the checkpoint has not changed, unless its declaration says what was before.
    """
    before = keys_of(saved)
    lasting = [key for key in keys(Config) if role_of(key) not in ("start", "place")]
    named = [key for key in lasting if key in before]
    pairs = [(key, before[key], attrgetter(key)(config)) for key in named]
    return [(key, was, now) for key, was, now in pairs if was != now]


def keys_of(saved: Checkpoint) -> dict[str, Value]:
    """Keys and values of the checkpoint's run, with those of keys that are younger than it."""
    return {**BEFORE, **saved.config}


def check_same_run(saved: Checkpoint, config: Config, dataset: Dataset) -> None:
    """Raises ValueError naming the text or key that forbids to resume the checkpoint."""
    check_text(saved, config, dataset)
    check_keys(saved, config)


def check_keys(saved: Checkpoint, config: Config) -> None:
    """Raises ValueError naming the key that forbids to resume the checkpoint; ignores the text."""
    if saved.is_nanogpts:
        raise ValueError(
            f"{saved.path}: is a checkpoint of nanoGPT, which sample.py can read but a resume "
            f"cannot; start from its weights: python -m training.export out_dir={config.out_dir} "
            "folder=FOLDER, then init_from=weights weights=FOLDER and another out_dir"
        )
    exact = [key for key in keys(Config) if key == "seed" or role_of(key) == "work"]
    for key in exact:
        if key not in keys_of(saved):
            raise ValueError(f"{saved.path}: its configuration has no {key}; {AGAIN}")
    differ = changes(saved, config)
    for key, was, now in differ:
        if role_of(key) == "model":
            raise ValueError(
                f"{key}={spell(now)}: the checkpoint has {spell(was)}, and its contents fit no "
                f"other value; leave {key} out: {resume_command(config)}"
            )
    if saved.iteration > config.max_iters and not config.eval_only:
        raise ValueError(
            f"max_iters={config.max_iters}: {saved.path} is already at iteration "
            f"{saved.iteration}; raise max_iters to train further, or evaluate it with "
            "eval_only=true"
        )
    refused = [each for each in differ if each[0] in exact]
    if sequences_per_iteration(saved.config) == sequences_per_iteration(vars(config)):
        refused = [each for each in refused if each[0] not in BATCH_KEYS]
    if refused and not config.exact_resume:
        return
    if refused:
        asked = ", ".join(f"{key}={spell(now)}" for key, _, now in refused)
        were = ", ".join(f"{key}={spell(was)}" for key, was, _ in refused)
        raise ValueError(
            f"{asked}: {saved.path} was trained with {were}, and the run would not continue "
            "unchanged; keep these values, or add exact_resume=false"
        )


def resume_command(config: Config) -> str:
    """Command that resumes the run in out_dir with its own keys."""
    return shlex.join(["python", "train.py", f"{config.out_dir}/config.yaml", "init_from=resume"])


def sequences_per_iteration(config: Mapping[str, Value]) -> Value:
    """Number of sequences in an iteration, or None if the keys are no numbers.

    It alone matters: the order of a run's sequences does not depend on how they are split.
    """
    batch_size, steps = (config.get(key) for key in BATCH_KEYS)
    return batch_size * steps if isinstance(batch_size, int) and isinstance(steps, int) else None


def check_text(saved: Checkpoint, config: Config, dataset: Dataset) -> None:
    if saved.text_sha256 is None:
        raise ValueError(f"{saved.path}: does not contain the text that it was trained on; {AGAIN}")
    if saved.text_sha256 != dataset.text_sha256:
        raise ValueError(
            f"dataset={config.dataset}: the checkpoint was trained on another text "
            f"({saved.source}, not {dataset.source}); use init_from=scratch, or continue with "
            f"its own keys: {resume_command(config)}"
        )
    if saved.tokenizer.to_record() != dataset.tokenizer.to_record():
        was, now = saved.tokenizer.vocab_size, dataset.tokenizer.vocab_size
        raise ValueError(
            f"dataset={config.dataset}: its vocabulary of {now} tokens is not the checkpoint's of "
            f"{was}, which is that of dataset={saved.config.get('dataset')}; resume with its "
            "dataset, tokenizer and bpe_vocab_size, or use init_from=scratch"
        )
