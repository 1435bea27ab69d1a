"""Programs of the fourteenth series, a module for each framework; series.py lists them."""
