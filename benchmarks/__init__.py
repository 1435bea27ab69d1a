"""Measurements of this project itself, each with the command that repeats it."""


def at_least(config: object, **least: int) -> None:
    """Raises ValueError for a key that is below its least value."""
    for key, value in least.items():
        if getattr(config, key) < value:
            raise ValueError(f"{key}={getattr(config, key)}: must be at least {value}")
