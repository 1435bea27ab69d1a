"""Programs of the tenth series, a module for each framework; ../series.py lists them."""
