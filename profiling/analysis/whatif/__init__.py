"""Prediction of a step behind a change: its calls and operations, replayed without some of them."""
