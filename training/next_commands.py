"""The commands that a run names, as a shell takes them.

Called by record, slow_ranks, flight_recorder and export.
"""

import json
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


def capture_of_ranks(out_dir: str, ranks: Ranks, slowest: int, fastest: int) -> str:
    """How to see why a rank is slower: all ranks of the same run, captured anew by one command.

    nsys is started on one host alone, and records CUDA: elsewhere it is what to add to the run's
    own. `report` compares what GPUs did, so on CPUs the two captures are compared as any two are.
    """
    folder = out_dir.rstrip("/")
    numbers = ",".join(map(str, sorted((slowest, fastest))))
    anew = f"start it with profile=torch profile.ranks=[{numbers}]"
    if ranks.device.type != "cuda":
        files = [f"{folder}/profile/window-1-rank{n}.trace.json.gz" for n in (fastest, slowest)]
        return f"{anew}, then {shlex.join(['python', '-m', 'profiling', 'compare', *files])}"
    here = ranks_here(ranks.world_size) or ranks.world_size
    if here < ranks.world_size:
        return anew
    words = ["--nproc-per-node", str(here), "--ranks", "all"]
    words += [f"{folder}/config.yaml", f"out_dir={folder}-ranks", "init_from=scratch"]
    return shlex.join(["python", "-m", "profiling", "run", *words])


def load_command(folder: str) -> str:
    """How transformers takes an export."""
    typed = json.dumps(folder, ensure_ascii=False)  # in double quotes, for a shell's single ones
    load = f"from transformers import AutoModelForCausalLM as M; M.from_pretrained({typed})"
    return shlex.join(["python", "-c", load])


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
