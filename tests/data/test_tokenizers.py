import json
import shutil
import threading

import numpy as np
import pytest
import tiktoken

from data.standin import stand_in_text
from data.tokenizers import BpeTokenizer, CharTokenizer, load_tokenizer
from tests.helpers.gpt2 import vocabulary

TEXT = stand_in_text(length=60_000)
MULTILINGUAL = "Grüße, 世界! \U0001f600 naïve\r\n\tदुनिया <|endoftext|> \x00"


@pytest.fixture(scope="module")
def local() -> BpeTokenizer:
    return BpeTokenizer.train(TEXT, 600)


def through_json(tokenizer):
    return load_tokenizer(json.loads(json.dumps(tokenizer.to_record())))


def test_char_ids_are_those_of_nanogpt():
    # sorted(set(text)) of tiny Shakespeare: newline 0, space 1, ..., z 64
    tokenizer = CharTokenizer(stand_in_text())
    assert (
        tokenizer.characters == "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    )
    ids = tokenizer.encode("First Citizen:\nZz")
    assert ids.tolist() == [18, 47, 56, 57, 58, 1, 15, 47, 58, 47, 64, 43, 52, 10, 0, 38, 64]
    assert ids.dtype == np.dtype("<u2")


def test_char_round_trip_in_any_language():
    tokenizer = through_json(CharTokenizer(MULTILINGUAL))
    ids = tokenizer.encode(MULTILINGUAL)
    assert len(ids) == len(MULTILINGUAL)
    assert tokenizer.decode(ids) == MULTILINGUAL
    assert tokenizer.decode_bytes(ids.tolist()) == MULTILINGUAL.encode()
    assert tokenizer.decode([]) == "" and len(tokenizer.encode("")) == 0


def test_vocabulary_of_more_than_65536_characters_takes_uint32():
    every = "".join(map(chr, [*range(0x20, 0xD800), *range(0xE000, 0x13000)]))
    tokenizer = CharTokenizer(every)
    ids = tokenizer.encode(every[::-1])
    assert tokenizer.vocab_size > 1 << 16 and ids.dtype == np.dtype("<u4")
    assert tokenizer.decode(ids) == every[::-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hi é", ["'\\xe9'", "U+00E9", "index 3"]),
        ("hi\nhé", ["U+00E9", "index 4 (line 2, column 2)"]),
        ("~", ["'~'", "U+007E", "index 0"]),
        ("\x00hi", ["'\\x00'", "U+0000", "index 0"]),
        ("h\udcffi", ["'\\udcff'", "U+DCFF", "index 1"]),
        ("h\U0010ffff", ["U+10FFFF", "index 1"]),
    ],
)
def test_unknown_character_is_named_with_its_place(text, words):
    with pytest.raises(ValueError) as raised:
        CharTokenizer("hi there\n").encode(text)
    message = str(raised.value)
    assert all(word in message for word in words), message
    assert len(message.splitlines()) == 1


def test_ids_outside_the_vocabulary_are_refused(local):
    for tokenizer in (CharTokenizer("abc"), local):
        for wrong in (-1, tokenizer.vocab_size):
            with pytest.raises(ValueError, match=f"token {wrong}: outside the vocabulary"):
                tokenizer.decode([0, wrong])


def test_local_bpe_encodes_any_text_and_compresses_its_own(local):
    assert local.vocab_size == 600 and local.kind == "local"
    assert {bytes([byte]) for byte in range(256)} <= set(local.tokens)
    ids = local.encode(MULTILINGUAL)
    assert local.decode(ids) == MULTILINGUAL
    assert local.decode_bytes(ids) == MULTILINGUAL.encode()
    assert len(local.encode(TEXT)) < len(TEXT) / 2
    assert len(local.encode("")) == 0


def test_local_bpe_is_the_same_each_time_and_after_its_record(local):
    assert BpeTokenizer.train(TEXT, 600).tokens == local.tokens
    again = through_json(local)
    assert again.tokens == local.tokens
    assert np.array_equal(again.encode(TEXT), local.encode(TEXT))


def test_bpe_of_256_tokens_is_the_bytes_themselves():
    tokenizer = BpeTokenizer.train(TEXT, 256)
    assert tokenizer.vocab_size == 256
    assert len(tokenizer.encode("Grüße")) == len("Grüße".encode())


def test_a_short_text_gives_fewer_tokens_than_asked_for():
    tokenizer = BpeTokenizer.train("a short text", 5000)
    assert 256 <= tokenizer.vocab_size < 300


def test_part_of_a_character_decodes_to_its_bytes(local):
    first_byte = "é".encode()[:1]
    ids = [local.tokens.index(first_byte)]
    assert local.decode_bytes(ids) == first_byte
    assert local.decode(ids) == "�"


def test_long_runs_of_one_character_do_not_overflow(local):
    for character in ("a", " ", "\n", "世"):
        text = character * 200_000
        assert local.decode(local.encode(text)) == text


def test_gpt2_has_an_end_of_text_token_and_its_record_needs_no_network(local, monkeypatch):
    # tiktoken's own registry is handed a small vocabulary in the place of the real one
    ranks = {token: rank for rank, token in enumerate(local.tokens)}
    small = tiktoken.Encoding(
        "gpt2",
        pat_str=local._encoding._pat_str,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": len(ranks)},
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "gpt2", small)
    tokenizer = BpeTokenizer.gpt2()
    monkeypatch.setattr(tiktoken, "get_encoding", None)  # from here on nothing may ask for it
    again = through_json(tokenizer)
    assert again.kind == "gpt2" and again.vocab_size == len(local.tokens) + 1
    assert again.decode([len(local.tokens)]) == "<|endoftext|>"
    text = "plain <|endoftext|> text"
    assert again.encode(text).tolist() == small.encode_ordinary(text)
    assert len(local.tokens) not in again.encode(text)


@pytest.fixture
def cached_vocabulary(tmp_path, monkeypatch, local):
    """vocab.json in Hugging Face's cache, of the local tokens; tiktoken is not to be asked."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("data.tokenizers.GPT2_TOKENS", len(local.tokens))
    monkeypatch.setattr(tiktoken, "get_encoding", None)
    path = tmp_path / "models--gpt2-large" / "snapshots" / "abc" / "vocab.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(vocabulary(local.tokens)), encoding="utf-8")
    return path


def test_gpt2_s_vocabulary_of_hugging_face_s_cache(cached_vocabulary, local):
    tokenizer = BpeTokenizer.gpt2()
    assert (tokenizer.kind, tokenizer.vocab_size) == ("gpt2", len(local.tokens) + 1)
    assert tokenizer.tokens == local.tokens
    assert tokenizer.encode(TEXT[:500]).tolist() == local.encode(TEXT[:500]).tolist()


def test_a_vocabulary_beside_the_weights_comes_first(cached_vocabulary, tmp_path, local):
    (tmp_path / "mine").mkdir()
    shutil.move(cached_vocabulary, tmp_path / "mine" / "vocab.json")
    assert BpeTokenizer.gpt2(tmp_path / "mine").tokens == local.tokens


@pytest.mark.parametrize(
    "damage",
    [
        lambda words: words.popitem() and words.pop("a"),
        lambda words: words.update({"more": len(words)}),
        lambda words: words.update({"a": "first"}),
        lambda words: words.update({"\u4e16": words.pop("e")}),
    ],
)
def test_a_damaged_vocabulary_is_one_line(cached_vocabulary, damage):
    words = json.loads(cached_vocabulary.read_text(encoding="utf-8"))
    damage(words)
    cached_vocabulary.write_text(json.dumps(words), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{cached_vocabulary}: damaged .*; remove it$"):
        BpeTokenizer.gpt2()
    cached_vocabulary.write_text("[" * 9, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{cached_vocabulary}: damaged"):
        BpeTokenizer.gpt2()


def test_gpt2_without_network_names_the_cure(no_gpt2):
    with pytest.raises(ValueError, match="tokenizer=gpt2: .*tokenizer=local") as raised:
        BpeTokenizer.gpt2()
    assert len(str(raised.value).splitlines()) == 1


def test_tokens_known_by_name_alone_say_what_text_would_need(no_gpt2):
    tokenizer = load_tokenizer({"kind": "gpt2"})
    assert tokenizer.vocab_size == 50257 and tokenizer.to_record() == {"kind": "gpt2"}
    for use in (lambda: tokenizer.encode("a"), lambda: tokenizer.decode_bytes([1])):
        with pytest.raises(ValueError, match="GPT-2's tokens: its vocabulary .*TIKTOKEN_CACHE_DIR"):
            use()


def test_gpt2_that_never_answers_is_given_up(monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: never.wait())
    monkeypatch.setattr("data.tokenizers.GPT2_LIMIT_S", 0.2)
    with pytest.raises(ValueError, match=r"no answer within 0\.2 s.*tokenizer=local"):
        BpeTokenizer.gpt2()
    never.set()


@pytest.fixture
def no_gpt2(monkeypatch, tmp_path):
    """tiktoken with an empty cache and a proxy that refuses every connection."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.delitem(tiktoken.registry.ENCODINGS, "gpt2", raising=False)
    for variable in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("vocab_size", [2**31, 10**23])
def test_a_vocabulary_larger_than_its_text_is_what_the_text_gives(vocab_size):
    text = "the cat, the hat, the bat " * 20
    trained = BpeTokenizer.train(text, vocab_size)
    assert trained.vocab_size == BpeTokenizer.train(text, 1000).vocab_size < 300
    assert trained.decode(trained.encode(text)) == text


def test_a_record_of_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind 'wordpiece' is unknown"):
        load_tokenizer({"kind": "wordpiece"})
