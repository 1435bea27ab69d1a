"""Where a run of several ranks hangs, from the dumps of their flight recorders."""
