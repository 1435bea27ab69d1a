"""Programs of the thirteenth series, a module for each framework; series.py lists them."""
