"""Programs of the eleventh series, a module for each framework; ../series.py lists them."""
