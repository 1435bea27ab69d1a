"""Commands that a run tells its user to type next, quoted for a shell.

Called by record, slow_ranks, flight_recorder and export.
"""

import json
import shlex

from data.tokenizers import CharTokenizer, Tokenizer
from training.machine.torchrun import ranks_here
from training.ranks.distributed import Ranks

SHAKESPEARE, NEW_LINE = "ROMEO:", "\\n"  # prompts, as they are typed after sample.py's start=


def sample_command(out_dir: str, tokenizer: Tokenizer) -> str | None:
    """Command that samples from the run, or None if no prompt can be typed in its characters."""
    start = typed_prompt(tokenizer)
    if start is None:
        return None
    return shlex.join(["python", "sample.py", f"out_dir={out_dir}", f"start={start}"])


def report_command(folder: str) -> str:
    return shlex.join(["python", "-m", "profiling", "report", folder])


def capture_of_ranks(out_dir: str, ranks: Ranks, slowest: int, fastest: int) -> str:
    """Command that shows why a rank is slower: it captures all ranks of the same run anew.

    It starts nsys, which works on one host and records CUDA. With several hosts, or on CPUs, it is
    instead what to add to the run's own command. `report` compares what GPUs did; on CPUs two
    captures are compared as any two are.
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
    """Command that loads an exported folder with transformers."""
    typed = json.dumps(folder, ensure_ascii=False)  # double quotes fit into a shell's single ones
    load = f"from transformers import AutoModelForCausalLM as M; M.from_pretrained({typed})"
    return shlex.join(["python", "-c", load])


def hang_command(folder: str) -> str:
    return shlex.join(["python", "-m", "profiling", "hang", folder])


def typed_prompt(tokenizer: Tokenizer) -> str | None:
    """A prompt of characters that the training text has, since sample.py refuses others.

    None if none of them can be typed.
    """
    if not isinstance(tokenizer, CharTokenizer) or set(SHAKESPEARE) <= set(tokenizer.characters):
        return SHAKESPEARE
    if "\n" in tokenizer.characters:
        return NEW_LINE
    printable = [character for character in tokenizer.characters if character.isprintable()]
    letters = [character for character in printable if character.isalpha()]
    return next(iter(letters or printable), None)
