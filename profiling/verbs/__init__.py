"""`python -m profiling VERB`: a module for each verb, its flags and what it prints."""
