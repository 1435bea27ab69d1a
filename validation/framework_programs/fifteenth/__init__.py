"""Programs of the fifteenth series, a module for each framework; series.py lists them."""
