"""Calls of a case: draws arguments from recipes, and evaluates torch's operator (the reference) on private copies."""
