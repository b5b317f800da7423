"""Comparison of a candidate's results with the expected ones."""
