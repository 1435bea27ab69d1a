"""The report of several ranks, as a Document."""
