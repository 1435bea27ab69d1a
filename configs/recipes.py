"""Messages about keys that a recipe sets: they name the recipe, since the user typed only that."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from configs import files

RECIPE = "recipe"
SETTING = re.compile(r"(?:^|(?<=: ))(\w+)=[^\s:]+:")  # KEY=VALUE: as a mistake begins


@contextmanager
def name_recipe_in_errors(words: list[str]) -> Iterator[None]:
    """Name the recipe in a ValueError within the block about a key that only the recipe sets.

    `words` are those of the command line.
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(with_recipe_name(str(error), words)) from error


def with_recipe_name(mistake: str, words: list[str]) -> str:
    """The message with the recipe: attention=triton: .. -> recipe=fast sets attention=triton: .."""
    values = dict(word.split("=", 1) for word in words if "=" in word)
    setting = SETTING.search(mistake)
    for option in values.get(RECIPE, "").split(","):
        if setting and option in files.options(RECIPE) and setting[1] not in values:
            recipe = files.load(files.FOLDER / RECIPE / f"{option}.yaml")
            if setting[1] in recipe:
                begin = setting.start()
                return f"{mistake[:begin]}{RECIPE}={option} sets {mistake[begin:]}"
    return mistake
