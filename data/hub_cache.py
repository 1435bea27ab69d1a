"""Lookup of files in Hugging Face's cache, as its own programs leave them; nothing is downloaded.

training.disk.gpt2 finds GPT-2's weights in it, data.tokenizers its vocabulary.
"""

import os
from collections.abc import Mapping
from pathlib import Path

# repositories of each of GPT-2's sizes, the current name first
REPOSITORIES = {
    "gpt2": ("openai-community/gpt2", "gpt2"),
    "gpt2_medium": ("openai-community/gpt2-medium", "gpt2-medium"),
    "gpt2_large": ("openai-community/gpt2-large", "gpt2-large"),
    "gpt2_xl": ("openai-community/gpt2-xl", "gpt2-xl"),
}


def hub_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of the cache: HF_HUB_CACHE, else hub/ in HF_HOME.

    HF_HOME is huggingface/ in XDG_CACHE_HOME, or in ~/.cache, if it is not set.
    """
    if cache := environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    default = Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(environ.get("HF_HOME") or default).expanduser() / "hub"


def cached_file(size: str, name: str) -> Path | None:
    """Path of file `name` of one of GPT-2's sizes, or None if it is not in the cache.

    It is that of branch main if there is one, else that of the newest revision.
    """
    for repository in REPOSITORIES[size]:
        folder = hub_folder() / f"models--{repository.replace('/', '--')}"
        try:
            main = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            main = ""
        paths = [path for path in folder.glob(f"snapshots/*/{name}") if path.is_file()]
        if paths:
            return max(paths, key=lambda path: (path.parent.name == main, path.stat().st_mtime))
    return None
