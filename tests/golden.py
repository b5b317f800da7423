"""Texts that people read, compared word for word with files in ``tests/cli/golden``.

After a change on purpose: ``TORCHSTONE_WRITE_GOLDEN=1 make test ARGS=tests/cli``, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "cli" / "golden"


def require_golden(name: str, shown: str) -> None:
    """Fail unless the text is what the file of this name holds; write the file where that was asked for."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TORCHSTONE_WRITE_GOLDEN"):
        path.write_text(shown)
    assert shown == path.read_text()
