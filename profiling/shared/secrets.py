"""Finds secrets in environments and commands, by names of variables and shapes of values."""

import re

SECRET_NAME = re.compile(
    r"KEY|(?<!TIK)TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|(?<![A-Z\d])PASS(?![A-Z\d])|CREDENTIAL|AUTH|"
    r"COOKIE|PRIVATE",
    re.I,
)
PASSWORD = re.compile(r"://[^/\s]*:[^/\s]+@")  # https://user:password@host
# beginnings and lengths as GitHub, GitLab, Slack, AWS, Hugging Face, npm (github.blog/security/
# announcing-npms-new-access-token-format) and Google (docs.cloud.google.com/docs/authentication/
# api-keys) publish them; one of PyPI is a macaroon in base64 (pypi.org/help), which begins with
# AgE; a JWT's first two parts are JSON in base64 (RFC 7519); several have hexadecimal keys
TOKEN = re.compile(
    r"(?<![A-Za-z0-9_])(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,}|glpat-[\w-]{20,}|"
    r"xox[abeoprs]-[\w-]{10,}|A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])|hf_[A-Za-z0-9]{30,}|"
    r"npm_[A-Za-z0-9]{36,}|pypi-AgE[\w-]{50,}|AIza[\w-]{35}|"
    r"eyJ[\w-]{10,2000}\.eyJ[\w-]+\.[\w-]{10,}|"  # bounds: names may be hostile
    r"sk-(?:[a-z\d]{1,20}-){0,3}[a-f\d]{32,})"
)
# of OpenAI, Anthropic and others, whose lengths differ (github.com/gitleaks/gitleaks has the same),
# and a run's name may begin so
SK = re.compile(r"(?<![A-Za-z0-9_])sk-[\w-]{20,}")
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")  # of ResNet50Large: Res, Net, 50, Large
TOKEN_BEGINS = (  # quicker to look for
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA"),
    *("hf_", "npm_", "pypi-", "AIza", "eyJ", "sk-"),
)
PLAIN_VALUE = re.compile(r"[-+.\de_]{1,12}|true|false|none|null", re.I)  # of --max_tokens=2048
OPTION = re.compile(r"[-+~]{1,2}[\w.-]+")  # Hydra's have + and ~
# --name VALUE, NAME=VALUE, ["name"] = VALUE and "name": VALUE within a shell's line, a program, a
# header, a URL or JSON
NAMED = re.compile(
    r"((?<!\S)-[\w.-]+\s+(?!-|\w+=)|(?<![\w.-])[\w.-]+[\"']?\]?(?:\s+=\s+|=|:\s*))"
    r"(\"[^\"]*\"|'[^']*'|(?!--)(?:Bearer |Basic )?\S+)"
)
HIDDEN = "[hidden]"


def secret_names(environ: dict[str, str]) -> list[str]:
    """Names of the variables that look like secrets, or hold a token or a password inside a URL."""
    return sorted(
        name
        for name, value in environ.items()
        if SECRET_NAME.search(name) or PASSWORD.search(value) or hide_tokens(value) != value
    )


def without_secret_values(words: list[str]) -> list[str]:
    """The words of a command as a file may hold them: values that look like secrets are HIDDEN.

    These are the values of options and variables whose names look like secrets, tokens, and
    passwords in URLs. Numbers stay where the name says no password, and so do yes and no.
    """
    kept = []
    for before, word in zip(["", *words], words, strict=False):
        name, equals, value = word.partition("=")
        is_value = before.startswith("-") and "=" not in before and not word.startswith("-")
        if is_value and is_secret(before, word):
            word = HIDDEN
        elif equals and OPTION.fullmatch(name) and is_secret(name, value):
            word = f"{name}={HIDDEN}"
        else:  # may be a line of a shell with further names and values
            word = hide_secrets(word)
        kept.append(hide_tokens(PASSWORD.sub(f"://{HIDDEN}@", word)))
    return kept


def hide_tokens(text: str) -> str:
    """The text with HIDDEN for each token that is known by its shape."""
    if not any(begin in text for begin in TOKEN_BEGINS):
        return text
    return SK.sub(lambda found: HIDDEN if is_drawn(found[0]) else found[0], TOKEN.sub(HIDDEN, text))


def is_drawn(text: str) -> bool:
    """Whether a part of the text between - and _ is of characters drawn at random, not words.

    These are 32 and more letters and digits, or 10 and more whose WORDs are shorter than three on
    average, in a text that has digits and capitals. 3 % of drawn texts of 24 letters and digits
    have no such part, and neither has sk-learn-ResNet50Large-bs64lr3e4.
    """
    mixed = bool(re.search(r"\d", text) and re.search("[A-Z]", text))
    return any(
        len(part) >= 32 or (mixed and 10 <= len(part) < 3 * len(WORD.findall(part)))
        for part in re.split("[-_]", text)
    )


def hide_secrets(line: str) -> str:
    """The line with HIDDEN for its secrets; what is none may be names and values itself."""
    kept, end = "", 0
    while named := NAMED.search(line, end):
        hidden, start = is_secret(*named.groups()), named.end(1)
        kept += line[end:start] + HIDDEN * hidden
        end = named.end() if hidden else start
    return kept + line[end:]


def is_secret(name: str, value: str) -> bool:
    is_plain = PLAIN_VALUE.fullmatch(value.strip("\"'")) and "PASS" not in name.upper()
    return bool(SECRET_NAME.search(name)) and not is_plain
