"""`python -m profiling VERB`: a module for each verb, whose docstring is its --help."""
