"""Make this checkout ready to run, whatever the machine has, and then run a Python command in it.

    python3 tools/bootstrap.py --for test -- -m pytest

Where the calling Python has no torch, a `.venv` is made and everything is installed into it. Where it has
one, that torch is the one to judge with: nothing of that Python is changed, no virtual environment is made
(one made from another would not see its packages), and only what is missing is laid out in `.deps`, first
from wheels carried in `wheels/`, then by pip. A stamp, written last, makes the next call instant; a set-up
that was cut short is made again from nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST_PYTHON = (3, 11)
if sys.version_info < OLDEST_PYTHON:
    sys.exit(
        f"set-up: {sys.executable} is Python {sys.version.split()[0]}, and Torchstone needs 3.11 or newer. "
        "Install one and name it: make PYTHON=python3.12"
    )

# Below the check, since an older Python cannot read these.
from pep508 import Requirement, combine, this_environment, unmet  # noqa: E402
from project import EXTRAS, ROOT, UNTOUCHABLE, digest, installed, project_digest, requirements  # noqa: E402
from wheels import BadWheelError, Interpreter, Wheel, newest, unpack, wheels_in  # noqa: E402

VENV = ROOT / ".venv"
DEPS = ROOT / ".deps"
WHEELS = ROOT / "wheels"
OWN_FOLDERS = (ROOT / "src", DEPS)
LOCK = ".lock"
STAMP = ".torchstone-stamp"
UNFINISHED = "unfinished"
LEVELS = tuple(EXTRAS)


class SetupError(Exception):
    """The set-up cannot go on; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Environment:
    """An interpreter and the variables to run it with."""

    python: str
    variables: Mapping[str, str]

    def __str__(self) -> str:
        """As a shell takes it."""
        path = self.variables.get("PYTHONPATH")
        return (f"PYTHONPATH={shlex.quote(path)} " if path else "") + shlex.quote(self.python)


class Stamp:
    """What a folder was last made for: `<interpreter> <project> <level>`, or that it was never finished."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / STAMP

    def read(self) -> list[str]:
        """The words of the stamp; none where the folder was not made by this tool."""
        try:
            return self._file.read_text().split()
        except FileNotFoundError:
            return []

    def write(self, *words: str) -> None:
        """Replace the stamp in one step."""
        fresh = self._file.with_name(f"{STAMP}.{os.getpid()}")
        fresh.write_text(" ".join(words) + "\n")
        fresh.replace(self._file)

    @contextlib.contextmanager
    def building(self, was: Sequence[str]) -> Iterator[None]:
        """Mark the folder as unfinished while it is worked on.

        A set-up that could not get what it wanted has left what was there whole, so that the old stamp comes
        back. One that was cut short may have left anything: its mark stays.
        """
        self.write(UNFINISHED)
        try:
            yield
        except SetupError:
            self.write(*was)
            raise


def main() -> None:
    """Set up, then become the command, or say how to call it where none is given."""
    parser = argparse.ArgumentParser(description="Set this checkout up and run a Python command in it.")
    parser.add_argument("--for", dest="level", choices=LEVELS, default="run", help="what must be there (default: run)")
    parser.add_argument("command", nargs="*", help="arguments for Python, after --")
    arguments = parser.parse_args()
    try:
        environment = prepare(arguments.level)
    except (SetupError, BadWheelError, ValueError, OSError) as error:
        sys.exit(f"set-up: {error}")
    except KeyboardInterrupt:
        sys.exit("set-up: interrupted. The next call starts over.")
    if arguments.command:
        os.execve(environment.python, [environment.python, *arguments.command], environment.variables)
    print(environment)


def prepare(level: str) -> Environment:
    """Bring the checkout to the level, doing nothing where it is there already."""
    sys.path[:] = [entry for entry in sys.path if not _is_own(entry)]
    if Path(sys.prefix).resolve() == VENV and Stamp(VENV).read():
        start_outside_venv()
    with only_one():
        return beside_torch(level) if has("torch") else virtual_environment()


def start_outside_venv() -> None:
    """Begin again with the Python that `.venv` was made from: nobody can rebuild the floor they stand on."""
    python = os.path.join(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info))
    os.execv(python, [python, *sys.orig_argv[1:]])


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the checkout's lock, so that two calls at once do not build over each other."""
    DEPS.mkdir(exist_ok=True)
    with (DEPS / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this folder")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def virtual_environment() -> Environment:
    """A `.venv` of our own, with everything in it."""
    python, stamp = VENV / "bin" / "python", Stamp(VENV)
    interpreter, project = digest(sys.version, sys.base_prefix, str(VENV)), project_digest()
    was = stamp.read()
    if was != [interpreter, project] or not python.exists():
        if VENV.exists() and not was:
            raise SetupError(
                f"{VENV} exists, but was not made by this set-up, which leaves it alone. To use it, install torch "
                "into it and call make PYTHON=.venv/bin/python; to have it made again, remove it."
            )
        if was[:1] != [interpreter] or not python.exists():
            was = make_venv()
        say("installing into .venv; the first time takes a minute or more")
        with stamp.building(was):
            pip_install(python)
        stamp.write(interpreter, project)
    return Environment(str(python), _variables(()))


def make_venv() -> list[str]:
    """An empty virtual environment, marked as unfinished from its first moment; returns that mark."""
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir()
    Stamp(VENV).write(UNFINISHED)
    outcome = subprocess.run([sys.executable, "-m", "venv", str(VENV)], stdout=2, check=False)
    if outcome.returncode:
        raise SetupError(
            f"{sys.executable} cannot make a virtual environment (see above). Install its venv package "
            "(Debian, Ubuntu: apt install python3-venv), or name another interpreter: make PYTHON=python3.12"
        )
    return [UNFINISHED]


def pip_install(python: Path) -> None:
    """Install the project into the virtual environment, held to the tested torch."""
    command = ["install", "-c", str(ROOT / "constraints.txt"), "-e", f"{ROOT}[triton,dev]"]
    if pip(str(python), command, {"PYTHONPATH": ""}):
        raise SetupError(
            "pip could not install what pyproject.toml asks for (see above). Check that this machine reaches a "
            "package index; where it cannot, name an interpreter that has torch: make PYTHON=/path/to/python"
        )


def pip(python: str, arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """Call pip with its chatter on stderr; its exit status alone decides, never its warnings."""
    quiet = [] if sys.stderr.isatty() else ["-qq"]
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    command = [python, "-m", "pip", arguments[0], *quiet, *arguments[1:]]
    return subprocess.run(command, env={**surroundings, **settings, **variables}, stdout=2, check=False).returncode


def beside_torch(level: str) -> Environment:
    """The calling interpreter as it is, with what it lacks in `.deps`."""
    stamp = Stamp(DEPS)
    key = digest(project_digest(), sys.version, sys.prefix, _host_distributions(), _carried())
    was = stamp.read()
    if was[:1] != [key] or LEVELS.index(was[1]) < LEVELS.index(level):
        if was[:1] != [key]:
            empty(DEPS)
            was = [UNFINISHED]
        with stamp.building(was):
            add_missing(level)
        stamp.write(key, level)
    return Environment(sys.executable, _variables(OWN_FOLDERS))


def empty(folder: Path) -> None:
    """Remove all but the lock, which this process holds."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()


def add_missing(level: str) -> None:
    """Lay out in `.deps` what this interpreter lacks for the level."""
    kept = {name for name in UNTOUCHABLE if has(name)}
    _say_kept(kept)
    fill(requirements(EXTRAS[level]), kept)
    if "triton" not in kept:
        try:
            fill(requirements(["triton"]), kept)
        except SetupError as error:
            say(f"going on without Triton: {error}")
    add_carried(kept)


def fill(roots: Sequence[Requirement], kept: set[str]) -> None:
    """Add distributions, and what they ask for in turn, until nothing is missing."""
    wanted: dict[str, set[Requirement]] = {}
    while missing := unmet(roots, installed([DEPS, *sys.path]), kept, this_environment()):
        before = {name: set(asked) for name, asked in wanted.items()}
        for name, asked in missing.items():
            wanted.setdefault(name, set()).update(asked)
        if wanted == before:
            raise SetupError(f"what was added does not meet {_listed(combine(asked) for asked in missing.values())}")
        add([combine(wanted[name]) for name in sorted(missing)])


def add(asked: Sequence[Requirement]) -> None:
    """Unpack each from the carried wheels, and the rest from what pip fetches."""
    fitting = fitting_wheels()
    chosen = {requirement: newest(fitting, requirement) for requirement in asked}
    rest = [requirement for requirement, wheel in chosen.items() if wheel is None]
    say(f"adding to .deps: {_listed(asked)}")
    with tempfile.TemporaryDirectory(dir=DEPS) as folder:
        fetched = fetch(rest, Path(folder)) if rest else ()
        for wheel in (*filter(None, chosen.values()), *fetched):
            unpack(wheel, DEPS)


def add_carried(kept: set[str]) -> None:
    """Lay out the other carried wheels: who carries a package wants it, whether or not the project asks for it."""
    there = kept | installed([DEPS, *sys.path]).keys()
    spare = {wheel.name for wheel in fitting_wheels()} - there
    if spare:
        add([Requirement(name) for name in sorted(spare)])


def fitting_wheels() -> list[Wheel]:
    """The carried wheels that this interpreter can use."""
    return [wheel for wheel in wheels_in(WHEELS) if wheel.fits(Interpreter.this())]


def fetch(asked: Sequence[Requirement], folder: Path) -> tuple[Wheel, ...]:
    """Have pip bring wheels, and only these: never what they ask for, which may be a torch."""
    carry = "On a machine with network run make wheels, and copy its wheels/ folder here."
    if not has("pip"):
        raise SetupError(f"{_listed(asked)} not found in wheels/ for this Python, which has no pip. {carry}")
    command = ["wheel", "--no-deps", "--wheel-dir", str(folder), *map(str, asked)]
    if pip(sys.executable, command, {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_RETRIES": "2"}):
        raise SetupError(f"{_listed(asked)} not found in wheels/ for this Python, nor by pip (see above). {carry}")
    return wheels_in(folder)


def has(module: str) -> bool:
    """Whether the calling interpreter can import it; a bare folder of that name does not count."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def say(text: str) -> None:
    """Tell the user, on stderr: stdout belongs to the command."""
    print(f"set-up: {text}", file=sys.stderr, flush=True)


def _say_kept(kept: set[str]) -> None:
    have = installed(sys.path)
    asked = {requirement.name: requirement for requirement in requirements(["triton"])}
    for name in sorted(kept & have.keys()):
        fits = asked[name].accepts(have[name].version)
        say(f"keeping {name} {have[name].version}" + ("" if fits else f", though {asked[name]} is asked for"))


def _is_own(entry: str) -> bool:
    return Path(entry).resolve() in OWN_FOLDERS


def _variables(own: Sequence[Path]) -> dict[str, str]:
    """The caller's variables, with our folders ahead on the import path."""
    theirs = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and not _is_own(entry)]
    path = os.pathsep.join([*map(str, own), *theirs])
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**others, "PYTHONPATH": path} if path else others


def _host_distributions() -> list[str]:
    """Names and versions of all that the calling interpreter has, read off its folders' names."""
    folders = (Path(entry) for entry in sys.path if os.path.isdir(entry))
    return sorted(f.name for folder in folders for f in folder.iterdir() if f.suffix in {".dist-info", ".egg-info"})


def _carried() -> list[tuple[str, int]]:
    return [(wheel.path.name, wheel.path.stat().st_size) for wheel in wheels_in(WHEELS)]


def _listed(items: Iterable[Requirement]) -> str:
    return ", ".join(map(str, items))


if __name__ == "__main__":
    main()
