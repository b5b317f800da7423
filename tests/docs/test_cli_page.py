"""docs/cli.md names the options that the commands have, with their defaults, and no others."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping

import click
import pytest

from docs.pages import ROOT
from torchstone import registry
from torchstone.cli import COMMANDS as TOP_LEVEL
from torchstone.cli import torchstone
from torchstone.cli.lazy import LazyGroup
from torchstone.executors import local

PAGE = (ROOT / "docs" / "cli.md").read_text()
HELP = {"--help"}


def with_subcommands(commands: Mapping[str, tuple[str, str]], group: str = "") -> Iterator[tuple[str, str]]:
    """Every command's full name and where it is, those of a group after the group."""
    for name, (where, _) in commands.items():
        yield group + name, where
        found = load(where)
        if isinstance(found, LazyGroup):
            yield from with_subcommands(found.commands_at, f"{group}{name} ")


def command(name: str) -> click.Command:
    return load(COMMANDS[name])


def load(where: str) -> click.Command:
    module, _, attribute = where.partition(":")
    found: click.Command = getattr(importlib.import_module(module), attribute)
    return found


COMMANDS = dict(with_subcommands(TOP_LEVEL))


def real_options(name: str) -> dict[str, click.Option]:
    options = (parameter for parameter in command(name).params if isinstance(parameter, click.Option))
    return {text: option for option in options for text in _documented(option)}


def _documented(option: click.Option) -> list[str]:
    """Its long names; the short one where it has no other."""
    return [text for text in option.opts if text.startswith("--")] or list(option.opts)


def section(name: str) -> str:
    found = re.search(rf"^## torchstone {re.escape(name)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section '## torchstone {name}'"
    return found[1]


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) | set(re.findall(r"`(-k)\b", text))


def rows(name: str) -> dict[str, str]:
    """Option -> what the column of defaults says."""
    return dict(re.findall(r"^\| `(--?[a-z-]+)[^`]*` \| ([^|]*) \|", section(name), re.MULTILINE))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_named_and_no_other(name: str) -> None:
    assert set(rows(name)) == set(real_options(name))
    assert options_in(section(name)) - HELP == set(real_options(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_are_told_as_they_are(name: str) -> None:
    for text, option in real_options(name).items():
        told = rows(name)[text].strip()
        if option.is_flag:
            assert told == "off", text
        elif isinstance(option.default, str | int | float) or text == "--output-dir":
            assert told == f"`{option.default}`", text


def test_the_program_itself_has_no_option_that_is_not_named() -> None:
    beginning = PAGE.partition("\n## ")[0]
    real = {text for parameter in torchstone.params for text in parameter.opts}
    assert options_in(beginning) - HELP == real


def test_there_is_a_section_for_every_command_and_no_other() -> None:
    assert re.findall(r"^## torchstone (.*)$", PAGE, re.MULTILINE) == list(COMMANDS)


def test_the_page_on_plugins_names_an_option_for_every_group_and_the_option_is_there() -> None:
    plugins = (ROOT / "docs" / "plugins.md").read_text()
    rows = dict(re.findall(r"^\| `(torchstone\.\w+)` \|.*\| ([^|]*) \|$", plugins, re.MULTILINE))
    groups = (registry.suites, registry.backends, registry.executors, registry.providers, registry.profilers)
    assert set(rows) == {names.group for names in groups}
    for group, told in rows.items():
        options = real_options("profile" if group == registry.profilers.group else "run")
        assert options_in(told) <= set(options), group
        assert options_in(told), group


def test_the_pages_tell_when_watch_gives_a_kernel_up() -> None:
    (seconds,) = set(importlib.import_module("torchstone.cli.watch").SECONDS.values())
    section = PAGE.partition("## torchstone watch")[2].partition("\n## ")[0]
    for stage in ("compile", "check", "measure"):
        assert f"| `--{stage}-timeout SECONDS` | {seconds:g} |" in section
    assert f"`--measure-timeout SECONDS` | {seconds:g} each |" in (ROOT / "docs" / "watch.md").read_text()
    cpu, cuda = local.RESTART_SECONDS["cpu"], local.RESTART_SECONDS["cuda"]
    assert f"{cpu:g} s on the CPU, {cuda:g} s on CUDA" in (ROOT / "docs" / "api.md").read_text()
