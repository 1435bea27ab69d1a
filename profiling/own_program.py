"""What is said where a user names a program of his own, and this project's training is meant.

Called by the verbs that start training, and where a capture is opened. The line itself says what to
do: an installation has no docs/.
"""

import re
from pathlib import Path

PAGE = "docs/own_program.md"
# what begins the command line of a program, and the names of scripts
PROGRAM = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|[^=]+\.py")
CONFIGURATIONS = ("config", "configs")  # nanoGPT's are scripts in such a folder
OURS = Path(__file__).resolve().parent.parent / "train.py"
READ = "python -m profiling report CAPTURE"
COMPARE = "before and after the change, then: python -m profiling compare BEFORE AFTER"


def refuse_own_program(verb: str, words: list[str]) -> None:
    """Raises ValueError where the words name another program than train.py, which `verb` starts."""
    program = program_in(words)
    if program is None:
        return
    if Path(program).resolve() == OURS:
        raise ValueError(f"{program}: {verb} starts it by itself; leave the word out")
    cure = f"then: {READ}" if verb == "run" else COMPARE
    raise ValueError(
        f"{program}: {verb} starts this project's train.py alone; capture your own program with "
        f"torch.profiler or nsys ({PAGE} shows how), {cure}"
    )


def program_in(words: list[str]) -> str | None:
    """Script among the words, else what starts one, or the first behind `--` if no option."""
    paths = {word: Path(word) for word in words}
    found = [word for word, path in paths.items() if PROGRAM.fullmatch(path.name)]
    found = [word for word in found if paths[word].parent.name not in CONFIGURATIONS]
    behind = words[words.index("--") + 1 :] if "--" in words else []
    found += [word for word in behind[:1] if not word.startswith("-")]
    return min(found, key=lambda word: not word.endswith(".py"), default=None)
