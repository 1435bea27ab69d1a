"""Names, records, files and units that a run writes and a report reads."""
