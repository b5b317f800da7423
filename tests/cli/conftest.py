"""Lets these tests use the small nouns of ``tests/runs/making.py``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))
