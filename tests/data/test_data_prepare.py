import hashlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import tiktoken

from configs.data import DataConfig
from data import download, prepare, source_text
from data.dataset import load_dataset
from data.standin import LENGTH, stand_in_text
from tests.paths import PROJECT

PLAY = stand_in_text(length=20_000)  # what the local server serves as tiny Shakespeare
REAL_TEXT = os.environ.get("TINY_SHAKESPEARE_FILE")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(autouse=True)
def closed_network(monkeypatch, tmp_path):
    """Nothing outside this machine: the text's address and gpt2's are ports nobody listens on."""
    monkeypatch.setenv(source_text.URL_VARIABLE, "http://127.0.0.1:9/input.txt")
    for module in (prepare, source_text):
        monkeypatch.setattr(module, "TINY_SHAKESPEARE_SHA256", sha256(PLAY))
    monkeypatch.setattr(download, "PAUSE_S", 0.02)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "no-cache"))
    monkeypatch.delitem(tiktoken.registry.ENCODINGS, "gpt2", raising=False)
    for variable in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(variable, "127.0.0.1")


@pytest.fixture
def data_dir(tmp_path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def serve(monkeypatch):
    """serve(answer, ...): a local server that gives these in turn, the last one for ever."""
    servers = []

    def start(*answers) -> list[str]:
        requests: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                answer = answers[min(len(requests), len(answers) - 1)]
                requests.append(self.path)
                answer(self)

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        monkeypatch.setenv(
            source_text.URL_VARIABLE, f"http://127.0.0.1:{server.server_port}/input.txt"
        )
        return requests

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ok(handler, body: bytes = PLAY.encode(), length: int | None = None):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)


def wrong_text(handler):
    ok(handler, b"<html>Sign in to this network</html>")


def cut_short(handler):
    ok(handler, PLAY.encode()[:5000], length=len(PLAY))


def not_found(handler):
    handler.send_error(404)


def silent(handler):
    time.sleep(3)


def trickling(handler):
    handler.send_response(200)
    handler.end_headers()
    for _ in range(60):
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.05)


def strict(**keys) -> DataConfig:
    return DataConfig(offline_fallback=False, **keys)


# The download


def test_download_is_prepared_as_nanogpt_does(serve, data_dir):
    requests = serve(ok)
    dataset = prepare.prepare(strict(), data_dir)
    assert dataset.source == "tiny_shakespeare"
    assert dataset.directory == data_dir / "shakespeare_char"
    assert (dataset.count("train"), dataset.count("val")) == (18_000, 2_000)
    raw = np.fromfile(dataset.directory / "train.bin", "<u2")
    assert dataset.tokenizer.decode(raw) == PLAY[:18_000]
    assert dataset.tokenizer.decode(dataset.tokens("val").read_all()) == PLAY[18_000:]
    meta = json.loads((dataset.directory / "meta.json").read_text())
    assert meta["text_sha256"] == sha256(PLAY) and meta["dtype"] == "uint16"
    assert sorted(path.name for path in data_dir.iterdir()) == [
        "shakespeare_char",
        "tinyshakespeare",
    ]
    assert len(requests) == 1


def test_a_prepared_folder_is_used_again_without_a_request(serve, data_dir, caplog):
    requests = serve(ok)
    first = prepare.prepare(strict(), data_dir)
    tokens = first.directory / "train.bin"
    written = tokens.stat().st_mtime_ns
    again = prepare.prepare(strict(), data_dir)
    assert again.directory == first.directory and tokens.stat().st_mtime_ns == written
    assert (again.text_sha256, again.files) == (first.text_sha256, first.files)
    # and its text for another tokenizer
    bpe = prepare.prepare(
        strict(dataset="shakespeare_bpe", tokenizer="local", bpe_vocab_size=300), data_dir
    )
    assert bpe.source == "tiny_shakespeare" and bpe.directory.name == "shakespeare_bpe-local300"
    assert len(requests) == 1
    assert not caplog.records


@pytest.mark.parametrize("failure", [wrong_text, cut_short, not_found])
def test_a_failed_try_is_tried_again(serve, data_dir, failure):
    requests = serve(failure, failure, ok)
    assert prepare.prepare(strict(), data_dir).source == "tiny_shakespeare"
    assert len(requests) == 3


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(wrong_text, "wrong content"), (cut_short, "wrong content"), (not_found, "404")],
)
def test_three_failed_tries_are_an_error_with_reason_and_cure(serve, data_dir, failure, reason):
    requests = serve(failure)
    with pytest.raises(ValueError) as raised:
        prepare.prepare(strict(), data_dir)
    message = str(raised.value)
    assert message.startswith("offline_fallback=false: ") and len(message.splitlines()) == 1
    assert reason in message and "data_source=FILE" in message
    assert len(requests) == 3
    assert not data_dir.exists()


@pytest.mark.parametrize(
    ("server", "silence_s", "limit_s"), [(silent, 0.2, 5), (silent, 5, 0.3), (trickling, 5, 0.3)]
)
def test_a_server_that_hangs_or_trickles_is_left(
    serve, data_dir, monkeypatch, server, silence_s, limit_s
):
    monkeypatch.setattr(download, "SILENCE_S", silence_s)
    monkeypatch.setattr(download, "LIMIT_S", limit_s)
    requests = serve(server)
    begin = time.monotonic()
    with pytest.raises(ValueError, match="timed out|no answer within"):
        prepare.prepare(strict(), data_dir)
    assert time.monotonic() - begin < 4
    assert len(requests) == 1


@pytest.mark.slow
def test_a_refused_connection_costs_little(data_dir, monkeypatch):
    monkeypatch.setattr(download, "PAUSE_S", 0.5)  # the true one
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        port = unused.getsockname()[1]
        monkeypatch.setenv(source_text.URL_VARIABLE, f"http://127.0.0.1:{port}/")
        begin = time.monotonic()
        with pytest.raises(ValueError, match="refused"):
            prepare.prepare(strict(), data_dir)
        assert time.monotonic() - begin < 4


@pytest.mark.parametrize("url", ["http://example.org/input.txt", "file:///etc/hostname"])
def test_only_https_is_downloaded(data_dir, monkeypatch, url):
    monkeypatch.setenv(source_text.URL_VARIABLE, url)
    with pytest.raises(ValueError, match="only https"):
        prepare.prepare(DataConfig(), data_dir)


def test_why_the_network_failed_is_what_the_system_said():
    """Errors lie around errors, as requests and huggingface_hub tell them."""
    system = socket.gaierror(-2, "Name or service not known")
    pool = Exception(f"HTTPSConnectionPool: Max retries exceeded (Caused by {system!r})")
    pool.__cause__ = system
    outer = ConnectionError(f"cannot find the files\n\n on the Hub: {pool}")
    outer.__context__ = pool
    assert download.reason_of(outer) == "gaierror: [Errno -2] Name or service not known"


def test_a_long_reason_is_cut_behind_a_word():
    said = download.reason_of(ValueError("damaged\n" + 40 * "download "))
    assert said.startswith("ValueError: damaged download download ")
    assert said.endswith(" download ...") and len(said) <= download.LONGEST_REASON


def test_a_damaged_copy_of_the_text_is_downloaded_again(serve, data_dir, caplog):
    requests = serve(ok)
    kept = data_dir / "tinyshakespeare" / "input.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text(PLAY[:100])
    prepare.prepare(strict(), data_dir)
    assert kept.read_text() == PLAY and len(requests) == 1
    assert "wrong SHA-256" in caplog.text


def test_the_address_and_checksum_are_those_of_tiny_shakespeare():
    # read from the source: the fixture above has replaced the constants
    source = Path(source_text.__file__).read_text()
    assert "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed" in source
    assert "karpathy/char-rnn/master/data/tinyshakespeare/input.txt" in source


@pytest.mark.skipif(
    not REAL_TEXT, reason="needs tiny Shakespeare: set TINY_SHAKESPEARE_FILE to a copy of it"
)
def test_the_real_text_gives_nanogpts_counts(data_dir):
    dataset = prepare.prepare(DataConfig(data_source=REAL_TEXT), data_dir)
    assert (dataset.count("train"), dataset.count("val")) == (1_003_854, 111_540)
    assert dataset.tokenizer.vocab_size == 65
    assert dataset.tokens("train").read_all()[:5].tolist() == [18, 47, 56, 57, 58]  # "First"


# The stand-in


# of tiny Shakespeare, in percent
FREQUENCIES = {" ": 15.2, "e": 8.5, "t": 6.0, "o": 5.9, "a": 5.0, "h": 4.6, "s": 4.5, "r": 4.4}
FREQUENCIES |= {"n": 4.4, "i": 4.1, "\n": 3.6, "l": 3.0, "d": 2.8, "u": 2.4, "m": 2.0, "y": 1.8}
FREQUENCIES |= {",": 1.8, "w": 1.6, "f": 1.4, "c": 1.4, "g": 1.2, "I": 1.1, "b": 1.0, "p": 1.0}


def test_the_stand_in_has_the_form_of_tiny_shakespeare():
    text = stand_in_text()
    assert len(text) == LENGTH == 1_115_394 and text.endswith("\n")
    assert len(set(text)) == 65
    for character, percent in FREQUENCIES.items():
        share = 100 * text.count(character) / len(text)
        assert share == pytest.approx(percent, rel=0.25), character
    speeches = text.split("\n\n")
    assert len(speeches) == pytest.approx(7222, rel=0.01)  # in 40,000 lines
    assert text.count("\n") == pytest.approx(40_000, rel=0.01)
    assert all(re.fullmatch(r"[A-Z][A-Za-z ]+:", speech.split("\n")[0]) for speech in speeches)
    spoken = [len(line) for speech in speeches for line in speech.split("\n")[1:]]
    assert max(spoken) < 64 and np.mean(spoken) == pytest.approx(39, abs=1)
    assert len(set(speeches)) > 0.9 * len(speeches)  # nothing to be learnt by heart at once


@pytest.mark.slow
def test_the_stand_in_is_the_same_everywhere():
    # runs of different machines are compared; this one's text is known by its hash
    assert sha256(stand_in_text()) == STAND_IN_SHA256
    assert stand_in_text().startswith(stand_in_text(length=500)[:-1])


STAND_IN_SHA256 = "4f1a064e2da519049603c89eecf1babc221764d1b71789837a0c7bbcfd905a3e"


def test_there_is_something_to_learn_in_the_stand_in():
    text = stand_in_text(length=200_000).encode()
    letters = bytes(np.random.default_rng(0).permutation(np.frombuffer(text, np.uint8)))
    assert len(zlib.compress(text)) < 0.7 * len(zlib.compress(letters))


@pytest.mark.slow
def test_without_a_network_the_stand_in_is_used_and_said_loudly(data_dir, caplog):
    for _ in range(2):  # found again the second time, and said again
        caplog.clear()
        dataset = prepare.prepare(DataConfig(), data_dir)
        assert dataset.source == "stand-in"
        assert dataset.directory == data_dir / "shakespeare_char-standin"
        assert (dataset.count("train"), dataset.count("val")) == (1_003_854, 111_540)
        (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert "NOT SHAKESPEARE" in warning and "NOT comparable" in warning
        assert "data_source=FILE" in warning and "refused" in warning
    assert json.loads((dataset.directory / "meta.json").read_text())["source"] == "stand-in"


@pytest.mark.slow
def test_the_real_text_replaces_the_stand_in_once_it_can_be_had(serve, data_dir):
    assert prepare.prepare(DataConfig(), data_dir).source == "stand-in"
    serve(ok)
    assert prepare.prepare(DataConfig(), data_dir).source == "tiny_shakespeare"


# A text of one's own


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_a_text_in_any_language(tmp_path, data_dir):
    text = "Жил-был пёс. 世界は広い。\n" * 60
    dataset = prepare.prepare(
        DataConfig(data_source=write(tmp_path / "мой текст.txt", text)), data_dir
    )
    assert dataset.source == "мой текст.txt"
    assert dataset.directory.name == f"shakespeare_char-мой_текст-{sha256(text)[:8]}"
    tokens = np.concatenate([dataset.tokens(split).read_all() for split in ("train", "val")])
    assert dataset.tokenizer.decode(tokens) == text


def test_line_ends_and_byte_order_mark_are_read_as_text(tmp_path, data_dir):
    source = write(tmp_path / "windows.txt", b"\xef\xbb\xbf" + b"line\r\n" * 100)
    dataset = prepare.prepare(DataConfig(data_source=source), data_dir)
    assert dataset.text_sha256 == sha256("line\n" * 100)
    assert dataset.tokenizer.characters == "\neiln"


def test_texts_of_one_name_are_never_mistaken_for_each_other(tmp_path, data_dir):
    source = write(tmp_path / "novel.txt", "a b c " * 100)
    first = prepare.prepare(DataConfig(data_source=source), data_dir)
    write(tmp_path / "novel.txt", "d e f " * 100)
    second = prepare.prepare(DataConfig(data_source=source), data_dir)
    assert first.directory != second.directory
    assert second.tokenizer.characters == " def"


def test_a_vocabulary_beyond_uint16_is_stored_as_uint32(tmp_path, data_dir):
    text = "".join(map(chr, [*range(0x20, 0xD800), *range(0xE000, 0x13000)]))
    dataset = prepare.prepare(DataConfig(data_source=write(tmp_path / "all.txt", text)), data_dir)
    assert dataset.tokens("val").dtype == np.dtype("<u4")
    assert dataset.tokens("val").read_all()[-1] == dataset.tokenizer.vocab_size - 1 > 1 << 16


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "No such file or directory"),
        ("directory", "Is a directory"),
        (b"", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"too short", "too short: 9 tokens; at least 300"),
        (b"caf\xe9" * 200, r"not UTF-8 \(byte 3 is 0xe9\)"),
    ],
)
@pytest.mark.parametrize("name", ["shakespeare_char", "shakespeare_bpe"])
def test_a_useless_source_is_named_with_its_fault(tmp_path, data_dir, content, complaint, name):
    path = tmp_path / "source.txt"
    if content == "directory":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    config = DataConfig(dataset=name, tokenizer="local", data_source=str(path))
    with pytest.raises(
        ValueError, match=complaint if name == "shakespeare_char" else None
    ) as raised:
        prepare.prepare(config, data_dir)
    message = str(raised.value)
    assert message.startswith(f"data_source={path}: ") and len(message.splitlines()) == 1
    assert not data_dir.exists() or not list(data_dir.iterdir())


# Tokenizers


def test_each_bpe_vocabulary_has_its_own_folder(tmp_path, data_dir, caplog):
    source = write(tmp_path / "play.txt", PLAY)
    names = set()
    for size in (256, 300):
        config = DataConfig(
            dataset="shakespeare_bpe", tokenizer="local", bpe_vocab_size=size, data_source=source
        )
        dataset = prepare.prepare(config, data_dir)
        assert dataset.tokenizer.vocab_size == size
        names.add(dataset.directory.name)
        assert dataset.tokenizer.decode(dataset.tokens("val").read_all()) == PLAY[18_000:]
    assert not caplog.records
    suffix = f"play-{sha256(PLAY)[:8]}"
    assert names == {f"shakespeare_bpe-local{size}-{suffix}" for size in (256, 300)}


def test_a_text_too_small_for_the_vocabulary_is_mentioned(tmp_path, data_dir, caplog):
    config = DataConfig(
        dataset="shakespeare_bpe",
        tokenizer="local",
        data_source=write(tmp_path / "play.txt", PLAY),
    )
    size = prepare.prepare(config, data_dir).tokenizer.vocab_size
    assert size < 2048
    assert f"bpe_vocab_size=2048: the text yields only {size} tokens" in caplog.text


def test_auto_takes_a_local_vocabulary_without_gpt2_and_says_so(tmp_path, data_dir, caplog):
    source = write(tmp_path / "play.txt", PLAY)
    config = DataConfig(dataset="shakespeare_bpe", bpe_vocab_size=300, data_source=source)
    for announcement in ("a local vocabulary", "prepared earlier without gpt2"):
        caplog.clear()
        dataset = prepare.prepare(config, data_dir)
        assert dataset.tokenizer.kind == "local"
        assert announcement in caplog.text


def test_auto_takes_gpt2_where_it_can_be_had(tmp_path, data_dir, monkeypatch, caplog):
    bytes_only = tiktoken.Encoding(
        "gpt2",
        pat_str=".",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={"<|endoftext|>": 256},
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "gpt2", bytes_only)
    source = write(tmp_path / "play.txt", PLAY)
    config = DataConfig(dataset="shakespeare_bpe", data_source=source)
    assert prepare.prepare(config, data_dir).directory.name.startswith("shakespeare_bpe-gpt2-play-")
    monkeypatch.delitem(tiktoken.registry.ENCODINGS, "gpt2")
    assert prepare.prepare(config, data_dir).tokenizer.kind == "gpt2"  # from the folder
    assert not caplog.records


def test_gpt2_asked_for_by_name_is_not_replaced(tmp_path, data_dir):
    source = write(tmp_path / "play.txt", PLAY)
    config = DataConfig(dataset="shakespeare_bpe", tokenizer="gpt2", data_source=source)
    with pytest.raises(ValueError, match="tokenizer=gpt2: .*tokenizer=local"):
        prepare.prepare(config, data_dir)


def test_a_tokenizer_that_characters_do_not_use_is_mentioned(tmp_path, data_dir, caplog):
    source = write(tmp_path / "play.txt", PLAY)
    dataset = prepare.prepare(DataConfig(tokenizer="local", data_source=source), data_dir)
    assert dataset.tokenizer.kind == "char"
    assert "tokenizer=local: not used by dataset=shakespeare_char" in caplog.text


# Folders


@pytest.fixture
def prepared(tmp_path, data_dir):
    config = DataConfig(data_source=write(tmp_path / "play.txt", PLAY))
    return config, prepare.prepare(config, data_dir)


def truncate(path: Path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [Path.unlink, truncate, lambda path: path.write_text("{}")])
@pytest.mark.parametrize("name", ["train.bin", "val.bin", "vocab.json", "meta.json"])
def test_a_damaged_folder_is_prepared_again_and_that_is_said(
    prepared, data_dir, caplog, name, damage
):
    config, dataset = prepared
    before = (dataset.directory / "train.bin").read_bytes()
    damage(dataset.directory / name)
    with pytest.raises(ValueError, match=f"{dataset.directory.name}: (incomplete|damaged)"):
        load_dataset(dataset.directory)
    again = prepare.prepare(config, data_dir)
    assert "preparing it again" in caplog.text
    assert (again.directory / "train.bin").read_bytes() == before
    assert load_dataset(dataset.directory) is not None
    assert [path.name for path in data_dir.iterdir()] == [dataset.directory.name]


def test_a_folder_with_files_of_somebody_else_is_left_alone(data_dir):
    other = data_dir / "shakespeare_char"
    other.mkdir(parents=True)
    (other / "prepare.py").write_text("print('mine')")
    with pytest.raises(
        ValueError, match=r"shakespeare_char: contains prepare\.py.*move the folder"
    ):
        prepare.prepare(DataConfig(), data_dir)
    assert (other / "prepare.py").read_text() == "print('mine')"


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    source = write(tmp_path / "play.txt", PLAY)
    with pytest.raises(ValueError, match=f"{blocked}: could not prepare data in this folder"):
        prepare.prepare(DataConfig(data_source=source), blocked)


@pytest.mark.slow
def test_processes_that_prepare_at_once_do_not_hurt_each_other(prepared, data_dir):
    config, dataset = prepared
    code = (
        "import sys; from pathlib import Path; from configs.data import DataConfig\n"
        "from data.prepare import prepare\n"
        "d = prepare(DataConfig(data_source=sys.argv[1]), Path(sys.argv[2]))\n"
        "print(d.tokenizer.decode(d.tokens('train').read_all())[:20])"
    )
    truncate(dataset.directory / "train.bin")  # all of them find it damaged
    command = [sys.executable, "-c", code, config.data_source, str(data_dir)]
    started = [
        subprocess.Popen(
            command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in started:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out.strip() == PLAY[:20].strip()
    assert [path.name for path in data_dir.iterdir()] == [dataset.directory.name]


# The command line


def command_line(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "data.prepare", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_error_is_one_line_and_exit_status_2(tmp_path):
    result = command_line("shakespeare_char", f"data_source={tmp_path}/absent.txt")
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr == (
        f"prepare.py: error: data_source={tmp_path}/absent.txt: No such file or directory; "
        "give a UTF-8 text file\n"
    )


def test_help_shows_examples_and_every_key():
    result = command_line("--help")
    assert result.returncode == 0 and result.stderr == ""
    assert "python -m data.prepare shakespeare_bpe tokenizer=local" in result.stdout
    assert all(f"  {key.name}=" in result.stdout for key in fields(DataConfig))


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        (
            "shakespeare_chars",
            "shakespeare_chars: no such file or folder; did you mean shakespeare_char?",
        ),
        (
            "tokenizer=gpt4",
            "tokenizer=gpt4: no such choice; did you mean gpt2? (auto, gpt2, local)",
        ),
        ("bpe_vocab_size=100", "bpe_vocab_size=100: must be at least 256"),
        ("bpe_vocab_size=many", "bpe_vocab_size=many: must be a whole number"),
        ("offline_fallback=maybe", "offline_fallback=maybe: must be true or false"),
        ("--force", "--force: write key=value"),
        ("color=red", "color: no such key"),
    ],
)
def test_arguments_that_make_no_sense_are_named(argument, complaint, capsys):
    with pytest.raises(SystemExit) as ended:
        prepare.main([argument])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and f": error: {complaint}" in error and error.count("\n") == 1


def test_the_command_ends_with_what_was_made_and_what_comes_next(
    tmp_path, data_dir, monkeypatch, capsys
):
    monkeypatch.setattr(prepare, "DATA_DIR", data_dir)
    source = write(tmp_path / "my play.txt", PLAY)
    prepare.main(["shakespeare_bpe", "--tokenizer=local", f"data_source={source}"])
    made, following = capsys.readouterr().out.splitlines()
    assert made.startswith(f"{data_dir}/shakespeare_bpe-local2048-my_play-")
    assert ": my play.txt, " in made and "vocabulary of " in made
    assert following == (
        "next: python train.py config/shakespeare_bpe.yaml "
        f"'data_source={source}' tokenizer=local attention=flash"
    )


def test_the_command_in_full(serve, data_dir, monkeypatch, capsys):
    serve(ok)
    monkeypatch.setattr(prepare, "DATA_DIR", data_dir)
    prepare.main(["shakespeare_char", "offline_fallback=true", "batch_size=12"])
    made, following = capsys.readouterr().out.splitlines()
    assert made == (
        f"{data_dir}/shakespeare_char: tiny_shakespeare, 18,000 training and 2,000 validation "
        f"tokens, vocabulary of {len(set(PLAY))}"
    )
    assert following == (
        "next: python train.py config/shakespeare_char.yaml batch_size=12 attention=flash"
    )


def test_texts_lie_in_a_checkout_or_in_the_users_cache(tmp_path, monkeypatch):
    package = tmp_path / "site-packages/data"
    monkeypatch.setenv("HOME", "/home/me")
    assert prepare.data_folder(package, {}) == Path("/home/me/.cache/profiling-nanogpt")
    environ = {"XDG_CACHE_HOME": "/scratch"}
    assert prepare.data_folder(package, environ) == Path("/scratch/profiling-nanogpt")
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").touch()
    assert prepare.data_folder(package, environ) == package
    assert PROJECT / "data" == prepare.DATA_DIR


def test_a_cache_that_cannot_be_written_is_told_with_its_cure(tmp_path):
    source = write(tmp_path / "play.txt", PLAY)
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(
        ValueError, match="could not prepare data in this folder: .*XDG_CACHE_HOME=FOLDER"
    ):
        prepare.prepare(DataConfig(data_source=source), tmp_path / "cache/profiling-nanogpt")
