"""What holds the step back, how sure that is, and what to try."""
