"""Calls of a case: arguments drawn from recipes, and the reference evaluated on private copies."""
