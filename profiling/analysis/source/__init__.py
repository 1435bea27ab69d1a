"""Read the source of the program that was captured."""
