"""Planted calls: calls of a case into whose arguments an input plan wrote special values (NaN, masks, ties)."""
