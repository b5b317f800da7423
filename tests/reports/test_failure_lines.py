"""What is printed of a failed kernel's traceback."""

from __future__ import annotations

from pathlib import Path

import torchstone
from torchstone.reports.failure_text import OUR_ROOMS, without_our_frames


def test_the_rooms_whose_frames_are_left_out_exist() -> None:
    package = Path(torchstone.__file__).parent
    assert [room for room in OUR_ROOMS if not ((package / room).is_dir() or (package / f"{room}.py").is_file())] == []


def test_frames_before_the_kernels_own_are_left_out() -> None:
    frames = [f'  File "/lib/torchstone/{room}.py", line 3, in call\n    call()\n' for room in OUR_ROOMS]
    own = '  File "kernel.py", line 2, in kernel\n    raise ValueError\n'
    shown = without_our_frames("Traceback (most recent call last):\n" + "".join(frames) + own + "ValueError\n")
    assert "torchstone" not in shown
    assert "kernel.py" in shown
