"""Fill `wheels/` with what a machine without network may lack: run here, copy the folder there.

Only wheels are fetched, for Linux on x86-64 whatever this machine is, and never torch, numpy or triton:
a machine to judge on brings its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

from pep508 import Distribution, Requirement, combine, unmet
from project import EXTRAS, ROOT, UNTOUCHABLE, requirements
from wheels import Wheel, wheels_in

WHEELS = ROOT / "wheels"
NEWEST_GLIBC = 28
"""Minor version of the C library that the other machine is taken to have: 2.28 is Debian 10, Ubuntu 20.04."""


def main() -> None:
    """Fetch until all that is asked for, by the project and in turn, is in the folder."""
    parser = argparse.ArgumentParser(description="Download wheels to carry to a machine without network.")
    parser.add_argument("--python", default="3.12", help="Python of the other machine (default: 3.12)")
    parser.add_argument("--for", dest="level", choices=tuple(EXTRAS), default="test", help="what it is to do there")
    parser.add_argument("also", nargs="*", type=Requirement.parse, help="packages to carry besides, each by itself")
    arguments = parser.parse_args()
    WHEELS.mkdir(exist_ok=True)
    if arguments.also:
        download(arguments.also, arguments.python)
    roots = requirements(EXTRAS[arguments.level])
    asked: dict[str, set[Requirement]] = {}
    while missing := unmet(roots, carried(), UNTOUCHABLE, environment(arguments.python)):
        for name, more in missing.items():
            asked.setdefault(name, set()).update(more)
        download([combine(asked[name]) for name in sorted(missing)], arguments.python)
    print(f"{WHEELS}: {_size()}. Copy the folder into the checkout on the other machine.")


def environment(python: str) -> dict[str, str]:
    """What markers are told about the other machine."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "platform_python_implementation": "CPython",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
    }


def carried() -> dict[str, Distribution]:
    """What the folder holds already."""
    return {wheel.name: Distribution(wheel.version, _requires(wheel)) for wheel in wheels_in(WHEELS)}


def download(asked: Sequence[Requirement], python: str) -> None:
    """Have pip download these, instead of other versions, without their dependencies."""
    print("downloading", ", ".join(map(str, asked)), flush=True)
    for old in wheels_in(WHEELS):
        if old.name in {requirement.name for requirement in asked}:
            old.path.unlink()
    target = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:", "--no-deps", *_platforms()]
    command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", *target]
    if subprocess.run([*command, "--dest", str(WHEELS), *map(str, asked)], check=False).returncode:
        sys.exit("pip could not download these (see above). Check the network, or take another Python with --python.")


def _platforms() -> Iterator[str]:
    for minor in range(NEWEST_GLIBC, 4, -1):
        yield f"--platform=manylinux_2_{minor}_x86_64"
    for old in ("2014", "2010", "1"):
        yield f"--platform=manylinux{old}_x86_64"


def _requires(wheel: Wheel) -> tuple[str, ...]:
    with ZipFile(wheel.path) as archive:
        name = next(
            name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1
        )
        headers = HeaderParser().parsestr(archive.read(name).decode())
    return tuple(headers.get_all("Requires-Dist", ()))


def _size() -> str:
    sizes = [path.stat().st_size for path in Path(WHEELS).glob("*.whl")]
    return f"{len(sizes)} wheels, {sum(sizes) / 2**20:.1f} MiB"


if __name__ == "__main__":
    main()
