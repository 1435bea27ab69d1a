"""Programs of the seventh series, a module for each framework; ../series.py lists them."""
