"""Programs with plain changes, one at a time; `python -m validation pairs` measures them.

series.py lists them, built.py and hidden.py have those that are this folder's own, existing.py
starts those of the other folders with a change in them.
"""
