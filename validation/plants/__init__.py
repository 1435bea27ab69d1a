"""Faults put into parts of the real trainer, in two series.

`python -m validation planted` trains with them; validation/planted_train.py is what it starts.
"""
