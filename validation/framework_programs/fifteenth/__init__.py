"""Programs of the fifteenth series."""
