"""Wheel files: which of them fit this interpreter, and how to lay one out in a folder.

A wheel is a zip file, so that a machine without network and without pip can still be given what it lacks.
Fitting is decided for Linux and for pure wheels, which is what is carried; anywhere else pip decides.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

from pep508 import Requirement, normalise, version_key

PYTHON_TAG = re.compile(r"(py|cp)(\d)(\d*)")
MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")
OLD_MANYLINUX = {
    "manylinux1_": "manylinux_2_5_",
    "manylinux2010_": "manylinux_2_12_",
    "manylinux2014_": "manylinux_2_17_",
}
FOLDERS = {"purelib": "", "platlib": "", "data": "", "scripts": "bin/"}


class BadWheelError(Exception):
    """A wheel file that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Interpreter:
    """What decides whether a wheel fits."""

    python: tuple[int, int]
    abi: str
    """As in `cp312`, or `cp313t` without the global lock."""
    machine: str
    glibc: tuple[int, int] | None
    """None where the C library is another one (macOS, musl)."""

    @classmethod
    def this(cls) -> Interpreter:
        """The interpreter that runs this."""
        library, version = platform.libc_ver()
        numbers = tuple(int(part) for part in version.split(".")[:2]) if library == "glibc" else ()
        glibc = (numbers[0], numbers[1]) if len(numbers) == 2 else None
        major, minor = sys.version_info[:2]
        return cls((major, minor), f"cp{major}{minor}{sys.abiflags}", platform.machine(), glibc)

    def takes(self, python: str, abi: str, system: str) -> bool:
        """Whether one tag triple of a wheel's name fits."""
        return self._takes_python(python, abi) and self._takes_system(system)

    def _takes_python(self, python: str, abi: str) -> bool:
        match = PYTHON_TAG.fullmatch(python)
        if match is None:
            return False
        kind, version = match[1], (int(match[2]), int(match[3] or 0))
        if version[0] != self.python[0] or version > self.python:
            return False
        if kind == "py":
            return abi == "none"
        return abi == "abi3" or (version == self.python and abi in {"none", self.abi})

    def _takes_system(self, system: str) -> bool:
        if system == "any":
            return True
        if system == f"linux_{self.machine}":
            return sys.platform == "linux"
        for old, new in OLD_MANYLINUX.items():
            system = system.replace(old, new)
        match = MANYLINUX.fullmatch(system)
        if match is None or self.glibc is None:
            return False
        return (int(match[1]), int(match[2])) <= self.glibc and match[3] == self.machine


@dataclass(frozen=True)
class Wheel:
    """A wheel file, as its name describes it."""

    path: Path
    name: str
    version: str
    tags: tuple[tuple[str, str, str], ...]

    @classmethod
    def parse(cls, path: Path) -> Wheel:
        """Read the name `distribution-version(-build)-python-abi-system.whl`."""
        parts = path.stem.split("-")
        if len(parts) not in (5, 6):
            raise BadWheelError(
                f"{path.name} is not named like a wheel: expected name-version-python-abi-system.whl. "
                "Give it its original name back, or take it out of the folder."
            )
        pythons, abis, systems = (part.split(".") for part in parts[-3:])
        tags = tuple((python, abi, system) for python in pythons for abi in abis for system in systems)
        return cls(path, normalise(parts[0]), parts[1], tags)

    def fits(self, interpreter: Interpreter) -> bool:
        """Whether the interpreter can use it."""
        return any(interpreter.takes(*tag) for tag in self.tags)


def wheels_in(folder: Path) -> tuple[Wheel, ...]:
    """Every wheel of a folder; none where there is no folder."""
    return tuple(Wheel.parse(path) for path in sorted(folder.glob("*.whl")))


def newest(wheels: Iterable[Wheel], requirement: Requirement) -> Wheel | None:
    """The newest of the wheels that meets the requirement."""
    named = (wheel for wheel in wheels if wheel.name == requirement.name)
    return max(
        (wheel for wheel in named if requirement.accepts(wheel.version)),
        key=lambda wheel: version_key(wheel.version),
        default=None,
    )


def unpack(wheel: Wheel, site: Path) -> None:
    """Lay the wheel out in the folder, and remove any other version of it."""
    for other in site.glob("*.dist-info"):
        if normalise(other.name.split("-")[0]) == wheel.name:
            _remove(PathDistribution(other), other)
    try:
        with zipfile.ZipFile(wheel.path) as archive:
            for member in archive.infolist():
                _extract(archive, member, site)
    except (zipfile.BadZipFile, EOFError) as error:
        raise BadWheelError(f"{wheel.path.name} is broken ({error}). Copy or download it again.") from error


def _remove(distribution: Distribution, info: Path) -> None:
    for file in distribution.files or ():
        Path(str(file.locate())).unlink(missing_ok=True)
    shutil.rmtree(info, ignore_errors=True)


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, site: Path) -> None:
    place = _place(member.filename)
    if member.is_dir() or place is None:
        return
    target = (site / place).resolve()
    if not target.is_relative_to(site.resolve()):
        raise BadWheelError(
            f"{archive.filename} wants to write {place!r}, outside of its folder. Do not use this file."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    if (member.external_attr >> 16) & 0o111 or place.startswith("bin/"):
        target.chmod(0o755)


def _place(member: str) -> str | None:
    """Where a member goes below the folder: `x.data/scripts/ruff` to `bin/ruff`; None for headers."""
    top, _, rest = member.partition("/")
    if not top.endswith(".data"):
        return member
    kind, _, inner = rest.partition("/")
    return FOLDERS[kind] + inner if kind in FOLDERS else None
