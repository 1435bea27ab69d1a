"""The commit that made a command slower or faster: `python -m profiling bisect`."""
