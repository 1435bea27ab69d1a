"""Programs of the eighth series, a module for each framework; ../series.py lists them."""
