"""The report of one capture: tables, charts, words."""
