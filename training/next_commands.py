"""The commands that a run ends with, as a shell takes them. Called by training.record."""

import shlex

from data.tokenizers import CharTokenizer, Tokenizer

SHAKESPEARE, NEW_LINE = "ROMEO:", "\\n"  # as sample.py's start= has it


def sample_command(out_dir: str, tokenizer: Tokenizer) -> str | None:
    """None where the text has nothing that can be typed, so that no prompt can be."""
    start = typed_prompt(tokenizer)
    if start is None:
        return None
    return shlex.join(["python", "sample.py", f"out_dir={out_dir}", f"start={start}"])


def report_command(folder: str) -> str:
    return shlex.join(["python", "-m", "profiling", "report", folder])


def typed_prompt(tokenizer: Tokenizer) -> str | None:
    """Of characters that the training text has: others sample.py refuses."""
    if not isinstance(tokenizer, CharTokenizer) or set(SHAKESPEARE) <= set(tokenizer.characters):
        return SHAKESPEARE
    if "\n" in tokenizer.characters:
        return NEW_LINE
    printable = [character for character in tokenizer.characters if character.isprintable()]
    letters = [character for character in printable if character.isalpha()]
    return next(iter(letters or printable), None)
