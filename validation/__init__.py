"""Evidence for verdicts, on planted faults and where nothing differs; and for pages."""
