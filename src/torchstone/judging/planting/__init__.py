"""Planted calls: calls of a case whose arguments an input plan has changed."""
