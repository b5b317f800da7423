"""BASELINE AGAINST OPTIMIZED: find pairs of benchmark files, run both sides in turn, compare, report."""
