"""Settings for all tests: one thread, no surprises from the caller's environment."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
