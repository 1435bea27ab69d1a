"""The processes of an experiment (`python -m profiling ab`): planned, run, captured."""
