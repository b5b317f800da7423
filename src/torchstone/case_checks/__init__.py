"""Processes that prepare or check cases with the judge's own comparison. Suites start them by name and import none."""
