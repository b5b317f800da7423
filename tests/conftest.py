"""Settings for all tests: one thread, no surprises from the caller's environment."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("COLUMNS", None)  # tables of a pipe would be made for a reader of that width
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs tests in the background ignores it, and so would every program that they start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_WHOLE_PROGRAMS = (
    "api", "backends", "cli", "docs", "executors", "feedback", "hostile", "installing", "judge_process", "profiling",
    "serving", "suites",
)  # fmt: skip
"""Rooms whose tests start programs and take long: first, so that short ones are left to even out two workers' ends."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rooms = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(rooms).parts[0] not in _WHOLE_PROGRAMS)


@pytest.fixture(scope="session", autouse=True)
def _caches_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ceilings measured beside other tests are no use to anyone: they stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        yield


@pytest.fixture(autouse=True)
def _the_same_random_numbers_in_ci(request: pytest.FixtureRequest) -> None:
    """In the test's own process. Judges draw from the system all the same."""
    if os.environ.get("CI"):
        random.seed(request.node.nodeid)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(random.getrandbits(60))
