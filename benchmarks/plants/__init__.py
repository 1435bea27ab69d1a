"""Faults put into parts of the real trainer, in two series.

`python -m benchmarks planted` trains with them; benchmarks/planted_train.py is what it starts.
"""
