"""Programs of the ninth series, a module for each framework; ../series.py lists them."""
