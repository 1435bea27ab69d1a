"""What a recipe of the command line sets, in the words of who typed the recipe's name alone."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from configs import files

RECIPE = "recipe"
SETTING = re.compile(r"(?:^|(?<=: ))(\w+)=[^\s:]+:")  # KEY=VALUE: as a mistake begins


@contextmanager
def recipe_named(words: list[str]) -> Iterator[None]:
    """Within it a mistake in a key that only a recipe of `words` sets names the recipe too."""
    try:
        yield
    except ValueError as error:
        raise ValueError(naming_recipe(str(error), words)) from error


def naming_recipe(mistake: str, words: list[str]) -> str:
    """attention=triton: ... -> recipe=fast sets attention=triton: ..."""
    values = dict(word.split("=", 1) for word in words if "=" in word)
    found = SETTING.search(mistake)
    for option in values.get(RECIPE, "").split(","):
        if found and option in files.options(RECIPE) and found[1] not in values:
            sets = files.load(files.FOLDER / RECIPE / f"{option}.yaml")
            if found[1] in sets:
                begin = found.start()
                return f"{mistake[:begin]}{RECIPE}={option} sets {mistake[begin:]}"
    return mistake
