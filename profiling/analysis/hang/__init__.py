"""Analysis of a hanging run of several ranks, from the dumps of their flight recorders."""
