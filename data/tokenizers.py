"""Tokenizers, of characters or byte-level BPE: text to token ids and back.

`data.prepare` makes a tokenizer and keeps its record; training and sampling load it from the
record, which holds the whole vocabulary, so that no tokenizer needs a network a second time.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import tiktoken
from numpy.typing import ArrayLike

from cli.records import entry
from data.download import finish_within, reason_of
from data.hub_cache import REPOSITORIES, cached_file

# GPT-2's pattern to cut a text into words before any merging, with possessive quantifiers (++),
# which match the same and do not overflow the stack on a long run of letters or spaces.
GPT2_SPLIT = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
GPT2_LIMIT_S = 60  # for the download of GPT-2's vocabulary, 1.5 MB in two files
GPT2_TOKENS = 50_256  # without the one that ends a text
END_OF_TEXT = "<|endoftext|>"
TRAINING_PIECE = 1 << 20  # characters passed to the BPE trainer at once, to bound its memory


def token_dtype(vocab_size: int) -> np.dtype:
    """Dtype of token ids on disk: little-endian uint16, or uint32 for a larger vocabulary."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def _valid_ids(ids: ArrayLike, vocab_size: int) -> np.ndarray:
    ids = np.asarray(ids, dtype=np.int64).reshape(-1)
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if len(outside):
        raise ValueError(f"token {outside[0]}: outside the vocabulary of {vocab_size} tokens")
    return ids


class CharTokenizer:
    """One token for each distinct character, numbered in order of code point, as in nanoGPT."""

    kind = "char"
    end_of_text = None

    def __init__(self, text: str) -> None:
        self._number("".join(sorted(set(text))))

    @classmethod
    def with_order(cls, characters: str) -> "CharTokenizer":
        """Make a tokenizer of distinct characters in the order of their ids, whatever that is."""
        tokenizer = cls("")
        tokenizer._number(characters)
        return tokenizer

    def _number(self, characters: str) -> None:
        self.characters = characters  # in order of id
        self._code_points = _code_points(characters)
        self._ids = np.argsort(self._code_points, kind="stable")  # in order of code point
        self._sorted = np.append(self._code_points[self._ids], np.uint32(0xFFFFFFFF))

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Token ids (len(text),). ValueError for a character that the training text lacked."""
        points = _code_points(text)
        places = np.searchsorted(self._sorted, points)
        known = self._sorted[places] == points
        if not known.all():
            raise ValueError(_unknown_character(text, int(np.argmin(known)), self.vocab_size))
        return self._ids[places].astype(token_dtype(self.vocab_size))

    def decode(self, ids: ArrayLike) -> str:
        """Text of a sequence of ids. ValueError for an id outside the vocabulary."""
        points: np.ndarray = self._code_points[_valid_ids(ids, self.vocab_size)]
        return points.tobytes().decode("utf-32-le")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        return self.decode(ids).encode()

    def to_record(self) -> dict[str, str]:
        return {"kind": self.kind, "characters": self.characters}


class BpeTokenizer:
    """Byte-level BPE with GPT-2's word splitting: any text can be encoded."""

    def __init__(self, kind: str, tokens: list[bytes]) -> None:
        """Take the bytes of each token in order of rank; all 256 single bytes are among them."""
        self.kind = kind
        self.tokens = tokens
        special = {END_OF_TEXT: len(tokens)} if kind == "gpt2" else {}
        ranks = {token: rank for rank, token in enumerate(tokens)}
        self._encoding = tiktoken.Encoding(
            kind, pat_str=GPT2_SPLIT, mergeable_ranks=ranks, special_tokens=special
        )

    @classmethod
    def gpt2(cls, beside: Path | None = None) -> "BpeTokenizer":
        """Tokenizer with GPT-2's own vocabulary of 50,257 tokens. ValueError if it cannot be had.

        The vocabulary is read from vocab.json in the folder `beside` of weights, or in Hugging
        Face's cache; else tiktoken finds or downloads it.
        """
        try:
            return cls._find_gpt2(beside)
        except ConnectionError as error:
            if beside:  # weights need this vocabulary and no other
                raise ValueError(
                    f"{beside}: these are GPT-2's weights, but {error}; put GPT-2's vocab.json "
                    "into this folder"
                ) from error
            raise ValueError(
                f"tokenizer=gpt2: {error}; with tokenizer=local, a tokenizer is trained on the "
                "text instead"
            ) from error

    @classmethod
    def _find_gpt2(cls, beside: Path | None = None) -> "BpeTokenizer":
        """Tokenizer as `gpt2`; ConnectionError says why its vocabulary cannot be had."""
        name = "vocab.json"
        own = [beside / name] if beside and (beside / name).is_file() else []
        # all sizes have the same vocabulary
        for path in (*own, *(cached_file(size, name) for size in REPOSITORIES)):
            if path:
                return cls("gpt2", read_vocabulary(path))
        try:
            encoding = finish_within(GPT2_LIMIT_S, lambda: tiktoken.get_encoding("gpt2"))
        except (OSError, ValueError) as error:  # OSError: no network; ValueError: damaged download
            raise ConnectionError(
                "its vocabulary is neither in the cache of tiktoken nor in that of Hugging "
                f"Face, and could not be downloaded ({reason_of(error)})"
            ) from error
        ordinary = encoding.n_vocab - len(encoding.special_tokens_set)
        return cls("gpt2", [encoding.decode_single_token_bytes(rank) for rank in range(ordinary)])

    @classmethod
    def train(cls, text: str, vocab_size: int) -> "BpeTokenizer":
        """Train a vocabulary of at most `vocab_size` tokens (256 or more) on the text."""
        # here, as only training a vocabulary needs it
        from tokenizers import Tokenizer as Trainee
        from tokenizers import models, pre_tokenizers, trainers

        trainee = Trainee(models.BPE())
        trainee.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            # Each merge shortens the text by a token at least, so a vocabulary is never larger than
            # this; the trainer allocates memory for all of `vocab_size`.
            vocab_size=min(vocab_size, 256 + len(text.encode())),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        pieces = (text[i : i + TRAINING_PIECE] for i in range(0, len(text), TRAINING_PIECE))
        trainee.train_from_iterator(pieces, trainer)
        vocabulary = trainee.get_vocab()
        byte_of = _byte_of_letter()
        by_rank = sorted(vocabulary, key=vocabulary.__getitem__)
        return cls("local", [bytes(byte_of[letter] for letter in token) for token in by_rank])

    @property
    def vocab_size(self) -> int:
        return self._encoding.n_vocab

    @property
    def end_of_text(self) -> int | None:
        """Id of the token that ends a document, or None: only GPT-2's vocabulary has one."""
        return self.vocab_size - 1 if self.kind == "gpt2" else None

    def encode(self, text: str) -> np.ndarray:
        """Token ids (n,); what looks like a special token is encoded as plain text."""
        ids = self._encoding.encode_to_numpy(text, disallowed_special=())
        return ids.astype(token_dtype(self.vocab_size))

    def decode(self, ids: ArrayLike) -> str:
        """Text of a sequence of ids, with U+FFFD for bytes that make no whole character."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """UTF-8 bytes of a sequence of ids. ValueError for an id outside the vocabulary."""
        return self._encoding.decode_bytes(_valid_ids(ids, self.vocab_size).tolist())

    def to_record(self) -> dict[str, str | list[str]]:
        # Latin-1 has a character for each byte, so that JSON can hold tokens that are no text.
        return {"kind": self.kind, "tokens": [token.decode("latin-1") for token in self.tokens]}


class Gpt2Tokenizer:
    """GPT-2's byte-level BPE, whose vocabulary is loaded only when a text is encoded or decoded.

    Training on tokens that others made needs only its size.
    """

    kind = "gpt2"
    vocab_size, end_of_text = GPT2_TOKENS + 1, GPT2_TOKENS

    @cached_property
    def _tokenizer(self) -> BpeTokenizer:
        try:
            return BpeTokenizer._find_gpt2()
        except ConnectionError as error:
            raise ValueError(
                f"GPT-2's tokens: {error}; give a copy of the tiktoken cache with "
                "TIKTOKEN_CACHE_DIR=FOLDER"
            ) from error

    def encode(self, text: str) -> np.ndarray:
        """Token ids (n,). ValueError if the vocabulary cannot be had."""
        return self._tokenizer.encode(text)

    def decode(self, ids: ArrayLike) -> str:
        return self._tokenizer.decode(ids)

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        return self._tokenizer.decode_bytes(ids)

    def to_record(self) -> dict[str, str]:
        return {"kind": self.kind}


Tokenizer = CharTokenizer | BpeTokenizer | Gpt2Tokenizer


def load_tokenizer(record: Mapping[str, object]) -> Tokenizer:
    """Make the tokenizer that `to_record` described. ValueError for a record of no known kind."""
    kind = record.get("kind")
    if kind == "char":
        return CharTokenizer.with_order(entry(record, "characters", str))
    if kind == "gpt2" and "tokens" not in record:
        return Gpt2Tokenizer()
    if kind in ("gpt2", "local"):
        tokens = entry(record, "tokens", list)
        return BpeTokenizer(kind, [token.encode("latin-1") for token in tokens])
    raise ValueError(f"tokenizer record: kind {kind!r} is unknown; use char, gpt2 or local")


def read_vocabulary(path: Path) -> list[bytes]:
    """GPT-2's tokens in order of rank, from its vocab.json. Raises ValueError."""
    byte_of = _byte_of_letter()
    try:
        rank_of = json.loads(path.read_text(encoding="utf-8"))
        words = sorted(rank_of.keys() - {END_OF_TEXT}, key=rank_of.__getitem__)
        tokens = [bytes(byte_of[letter] for letter in word) for word in words]
        ids = [rank_of[word] for word in words]
        if ids != list(range(GPT2_TOKENS)) or {bytes([byte]) for byte in range(256)} - set(tokens):
            raise ValueError(f"not the {GPT2_TOKENS:,} tokens of GPT-2")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged ({str(error)[:80]}); remove it") from error
    return tokens


def _code_points(text: str) -> np.ndarray:
    # surrogatepass: the command line can pass half a pair, which is refused like any other
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _unknown_character(text: str, index: int, vocab_size: int) -> str:
    where = f"at index {index}"
    if "\n" in text:
        line_start = text.rfind("\n", 0, index) + 1
        line = text.count("\n", 0, index) + 1
        where += f" (line {line}, column {index - line_start + 1})"
    return (
        f"character {text[index]!a} (U+{ord(text[index]):04X}) {where}: "
        f"not among the {vocab_size} characters of the training text"
    )


def _byte_of_letter() -> dict[str, int]:
    """Byte that each letter of a byte-level vocabulary stands for.

    GPT-2 wrote printable bytes as their Latin-1 characters and the others, in order, as the
    characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + i): byte for i, byte in enumerate(others)
    }
