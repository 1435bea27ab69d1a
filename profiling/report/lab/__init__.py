"""Documents of the lab's measurements and of other tools' results."""
