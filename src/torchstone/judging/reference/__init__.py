"""Computes expected results: the reference in its own dtype and in float64, and the error bounds."""
