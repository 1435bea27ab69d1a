"""Files of Hugging Face's cache, as its own programs leave them. Nothing is downloaded here.

GPT-2's weights are read from it by training.gpt2, its vocabulary by data.tokenizers.
"""

import os
from collections.abc import Mapping
from pathlib import Path

# of each of GPT-2's sizes, its name of today first
REPOSITORIES = {
    "gpt2": ("openai-community/gpt2", "gpt2"),
    "gpt2_medium": ("openai-community/gpt2-medium", "gpt2-medium"),
    "gpt2_large": ("openai-community/gpt2-large", "gpt2-large"),
    "gpt2_xl": ("openai-community/gpt2-xl", "gpt2-xl"),
}


def hub_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """HF_HUB_CACHE, else hub/ in HF_HOME, which is in ~/.cache (or XDG_CACHE_HOME) as a rule."""
    if cache := environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    default = Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(environ.get("HF_HOME") or default).expanduser() / "hub"


def cached(size: str, name: str) -> Path | None:
    """The file `name` of one of GPT-2's sizes: of the branch main, else of its newest revision."""
    for repository in REPOSITORIES[size]:
        folder = hub_folder() / f"models--{repository.replace('/', '--')}"
        try:
            main = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            main = ""
        found = [path for path in folder.glob(f"snapshots/*/{name}") if path.is_file()]
        if found:
            return max(found, key=lambda path: (path.parent.name == main, path.stat().st_mtime))
    return None
