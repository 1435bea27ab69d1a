"""A Document for a terminal, as Markdown, as a page: one module each."""
