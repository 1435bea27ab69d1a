"""The processes of `python -m profiling bench`: planned, run, their output read."""
