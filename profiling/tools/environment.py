"""The environment of a profiled run, without what must not be read in its report.

nsys stores the environment of the processes that it starts, and those blocks also come back among
the strings of child processes; reports are made to be passed on. So a profiled run does not get
the secrets at all. Called by profiling.verbs.run.
"""

import os
import re

SECRET_NAME = re.compile(
    r"KEY|(?<!TIK)TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|(^|_)PASS(_|$)|CREDENTIAL|AUTH|COOKIE|PRIVATE",
    re.I,
)
SECRET_VALUE = re.compile(r"://[^/\s]*:[^/\s]+@")  # https://user:password@host


def secret_names(environ: dict[str, str]) -> list[str]:
    """The variables that look like secrets, by their name or by a password inside a URL."""
    return sorted(
        name
        for name, value in environ.items()
        if SECRET_NAME.search(name) or SECRET_VALUE.search(value)
    )


def without_secrets() -> tuple[dict[str, str], list[str]]:
    """The environment of this process without them, and their names."""
    removed = secret_names(dict(os.environ))
    return {name: os.environ[name] for name in os.environ if name not in removed}, removed
