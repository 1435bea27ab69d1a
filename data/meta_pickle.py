"""Reader of nanoGPT's meta.pkl, a vocabulary of characters: as data and never as code."""

import io
import pickle
import pickletools
from pathlib import Path
from typing import NoReturn

from data.tokenizers import CharTokenizer

LARGEST_BYTES = 1 << 26  # every character of Unicode takes half of it
# pickletools' names of the instructions that make a dict, a str or an int, or keep one for later
DATA = {"PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK"}
DATA |= {"EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"}
DATA |= {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
DATA |= {"INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2"}
DATA |= {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"}
INSTEAD = "no code in it was run: write the file again with nanoGPT's prepare.py, or remove it"


class DataUnpickler(pickle.Unpickler):
    """Unpickler that refuses every name, so that a pickle can call nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"names {module}.{name}")


def read_meta(path: Path) -> CharTokenizer:
    """Tokenizer that nanoGPT's meta.pkl describes. Raises ValueError with a message of one line."""
    if path.stat().st_size > LARGEST_BYTES:
        raise ValueError(f"{path}: larger than any vocabulary of characters; {INSTEAD}")
    content = path.read_bytes()
    try:
        for instruction, argument, _ in pickletools.genops(content):
            if instruction.name not in DATA:
                named = f" ({argument})" if isinstance(argument, str) else ""
                raise ValueError(
                    f"{path}: contains more than a dict of str and int: "
                    f"{instruction.name}{named}, which may be code; {INSTEAD}"
                )
            # Python allocates a table as long as the largest number that an object is kept under
            if instruction.name.endswith("PUT") and int(argument or 0) > len(content):
                raise pickle.UnpicklingError(f"keeps object {argument}")
        meta = DataUnpickler(io.BytesIO(content)).load()
    except (pickle.UnpicklingError, EOFError, KeyError, IndexError, TypeError, OverflowError) as e:
        raise ValueError(f"{path}: damaged ({type(e).__name__}); {INSTEAD}") from e
    except ValueError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise ValueError(f"{path}: damaged (not a pickle); {INSTEAD}") from error
    return tokenizer_of(meta, path)


def tokenizer_of(meta: object, path: Path) -> CharTokenizer:
    """Tokenizer from the content of a meta.pkl: vocab_size, itos and stoi, as nanoGPT writes them.

    Raises ValueError for anything else; `path` is for the message.
    """
    wrong = f"{path}: not nanoGPT's: "
    if not isinstance(meta, dict):
        raise ValueError(f"{wrong}contains a {type(meta).__name__}, not a dict; {INSTEAD}")
    if missing := [name for name in ("vocab_size", "itos", "stoi") if name not in meta]:
        raise ValueError(f"{wrong}has no {missing[0]}; {INSTEAD}")
    size, itos, stoi = meta["vocab_size"], meta["itos"], meta["stoi"]
    if not isinstance(itos, dict) or not isinstance(stoi, dict) or not itos:
        raise ValueError(f"{wrong}itos and stoi must be dicts; {INSTEAD}")
    if size != len(itos) or set(itos) != set(range(len(itos))):
        raise ValueError(
            f"{wrong}vocab_size={size!r:.20}, but itos has {len(itos)} ids, which must count from "
            f"0; {INSTEAD}"
        )
    characters = [itos[number] for number in range(len(itos))]
    if not all(isinstance(token, str) and len(token) == 1 for token in characters):
        raise ValueError(f"{wrong}a token must be one character; {INSTEAD}")
    if stoi != {character: number for number, character in itos.items()}:
        raise ValueError(f"{wrong}stoi is not the inverse of itos; {INSTEAD}")
    return CharTokenizer.with_order("".join(characters))
