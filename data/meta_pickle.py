"""nanoGPT's meta.pkl: the characters of a vocabulary, read as data and never as code."""

import io
import pickle
import pickletools
from pathlib import Path
from typing import NoReturn

from data.tokenizers import CharTokenizer

LARGEST_BYTES = 1 << 26  # every character of Unicode takes half of it
# instructions that make a dict, a str or an int, or keep one for later; the names are pickletools'
DATA = {"PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK"}
DATA |= {"EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"}
DATA |= {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
DATA |= {"INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2"}
DATA |= {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"}
INSTEAD = "nothing of it was run: write it anew with nanoGPT's prepare.py, or remove it"


class DataUnpickler(pickle.Unpickler):
    """Knows no name: a pickle can call nothing by it."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"names {module}.{name}")


def read_meta(path: Path) -> CharTokenizer:
    """The tokenizer that a meta.pkl of nanoGPT describes. Raises ValueError in one line."""
    if path.stat().st_size > LARGEST_BYTES:
        raise ValueError(f"{path}: larger than any vocabulary of characters; {INSTEAD}")
    content = path.read_bytes()
    try:
        for instruction, argument, _ in pickletools.genops(content):
            if instruction.name not in DATA:
                named = f" ({argument})" if isinstance(argument, str) else ""
                raise ValueError(
                    f"{path}: holds more than a dict of str and int, {instruction.name}{named}, "
                    f"which may be code; {INSTEAD}"
                )
            # Python makes room for as many objects as the largest number it is told to keep one by
            if instruction.name.endswith("PUT") and int(argument or 0) > len(content):
                raise pickle.UnpicklingError(f"keeps object {argument}")
        meta = DataUnpickler(io.BytesIO(content)).load()
    except (pickle.UnpicklingError, EOFError, KeyError, IndexError, TypeError, OverflowError) as e:
        raise ValueError(f"{path}: damaged ({type(e).__name__}); {INSTEAD}") from e
    except ValueError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise ValueError(f"{path}: damaged (no pickle); {INSTEAD}") from error
    return tokenizer_of(meta, path)


def tokenizer_of(meta: object, path: Path) -> CharTokenizer:
    """Raises ValueError where it is not what nanoGPT writes: vocab_size, itos and stoi."""
    wrong = f"{path}: not nanoGPT's: "
    if not isinstance(meta, dict):
        raise ValueError(f"{wrong}holds {type(meta).__name__}, not a dict; {INSTEAD}")
    if missing := [name for name in ("vocab_size", "itos", "stoi") if name not in meta]:
        raise ValueError(f"{wrong}lacks {missing[0]}; {INSTEAD}")
    size, itos, stoi = meta["vocab_size"], meta["itos"], meta["stoi"]
    if not isinstance(itos, dict) or not isinstance(stoi, dict) or not itos:
        raise ValueError(f"{wrong}itos and stoi must be dicts; {INSTEAD}")
    if size != len(itos) or set(itos) != set(range(len(itos))):
        raise ValueError(
            f"{wrong}vocab_size={size!r:.20}, but itos has {len(itos)} ids, which must count from "
            f"0; {INSTEAD}"
        )
    characters = [itos[number] for number in range(len(itos))]
    if not all(isinstance(each, str) and len(each) == 1 for each in characters):
        raise ValueError(f"{wrong}a token must be one character; {INSTEAD}")
    if stoi != {character: number for number, character in itos.items()}:
        raise ValueError(f"{wrong}stoi is not itos the other way round; {INSTEAD}")
    return CharTokenizer.in_order("".join(characters))
