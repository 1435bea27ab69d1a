"""A capture for ui.perfetto.dev."""
