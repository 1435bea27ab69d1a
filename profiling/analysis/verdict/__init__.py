"""Name what limits the step, with the evidence and what to try next."""
