"""The hook: what runs inside a program that `profiling run -- COMMAND` starts.

It imports the standard library and torch alone. No package of this project may be importable there,
because the program may have its own model, data or configs. Python 3.8 syntax.
"""
