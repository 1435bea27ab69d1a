"""What the lab measured and what tools told, as Documents."""
