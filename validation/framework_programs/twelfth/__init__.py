"""Programs of the twelfth series, a module for each framework; series.py lists them."""
