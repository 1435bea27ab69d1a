"""Short programs of many frameworks, each with a fault that can be left out, or with none.

series.py lists them, by program.py; a module holds those of one framework, and the folders seventh
to fifteenth have those of these series. `python -m validation foreign series=6` runs them, each in
processes of its own.
"""
