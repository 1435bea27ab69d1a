"""The commands that a run names, as a shell takes them.

Called by record, slow_ranks and flight_recorder.
"""

import shlex

from data.tokenizers import CharTokenizer, Tokenizer
from training.distributed import Ranks
from training.torchrun import ranks_here

SHAKESPEARE, NEW_LINE = "ROMEO:", "\\n"  # as sample.py's start= has it


def sample_command(out_dir: str, tokenizer: Tokenizer) -> str | None:
    """None where the text has nothing that can be typed, so that no prompt can be."""
    start = typed_prompt(tokenizer)
    if start is None:
        return None
    return shlex.join(["python", "sample.py", f"out_dir={out_dir}", f"start={start}"])


def report_command(folder: str) -> str:
    return shlex.join(["python", "-m", "profiling", "report", folder])


def capture_of_ranks(out_dir: str, ranks: Ranks, *compared: int) -> str:
    """Captures all ranks of the same run anew where one command can, else says what to add to it:
    nsys is started on one host alone, and records CUDA."""
    here = ranks_here(ranks.world_size) or ranks.world_size
    if ranks.device.type != "cuda" or here < ranks.world_size:
        numbers = ",".join(map(str, sorted(compared)))
        return f"start it with profile=torch profile.ranks=[{numbers}]"
    words = ["--nproc-per-node", str(here), "--ranks", "all"]
    folder = out_dir.rstrip("/")
    words += [f"{folder}/config.yaml", f"out_dir={folder}-ranks", "init_from=scratch"]
    return shlex.join(["python", "-m", "profiling", "run", *words])


def hang_command(folder: str) -> str:
    return shlex.join(["python", "-m", "profiling", "hang", folder])


def typed_prompt(tokenizer: Tokenizer) -> str | None:
    """Of characters that the training text has: others sample.py refuses."""
    if not isinstance(tokenizer, CharTokenizer) or set(SHAKESPEARE) <= set(tokenizer.characters):
        return SHAKESPEARE
    if "\n" in tokenizer.characters:
        return NEW_LINE
    printable = [character for character in tokenizer.characters if character.isprintable()]
    letters = [character for character in printable if character.isalpha()]
    return next(iter(letters or printable), None)
