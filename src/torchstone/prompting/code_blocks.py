"""Takes the kernel's code out of a model's reply: the last complete code block that defines the entry point."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from torchstone.backends.native_source import functions_in, mentions
from torchstone.backends.python_source import definitions_in
from torchstone.backends.source_files import MAX_BYTES

_OPENING = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`\n]*$")
_MOST_CLOSING_FENCES = 8
"""Closing fences that are tried as the end of a block: docstrings may contain some. Each try parses the text again."""
_MOST_NAMES = 8
"""Most functions that a message lists if the entry point is missing."""


class CodeInReply(msgspec.Struct, frozen=True):
    """The code in a reply, or the problem if there is none."""

    code: str | None
    """The text of the kernel's file; None if there is none that could be judged."""
    problem: str = ""
    """What is wrong with the reply and how to answer instead, in words for the model; empty with code."""


class _Block(msgspec.Struct, frozen=True):
    """A fenced code block; it is not complete if the reply ends inside it."""

    text: str
    is_complete: bool


def code_in(reply: str, entry: str) -> CodeInReply:
    """The code in the reply that defines ``entry``, a function of Python, C++ or CUDA or a Python class."""
    reply = reply.replace("\r\n", "\n")
    blocks = list(_blocks(reply, entry))
    complete = [block.text for block in blocks if block.is_complete]
    for is_kernel in (_defines, _mentions_in_cpp, _imports):
        found = [text for text in complete if is_kernel(text, entry)]
        if found:
            return _within_size(found[-1])
    if not blocks and _is_bare_code(reply, entry):
        return _within_size(reply.strip() + "\n")
    return CodeInReply(None, _problem(blocks, entry))


def _within_size(text: str) -> CodeInReply:
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        return CodeInReply(None, f"The code is longer than {MAX_BYTES >> 20} MiB. Send a shorter file.")
    return CodeInReply(text)


def _problem(blocks: list[_Block], entry: str) -> str:
    send = f"Send one code block with the whole file, which defines `{entry}`."
    if not blocks:
        return f"The reply has no code block. {send}"
    if not blocks[-1].is_complete:
        return f"The reply ends inside a code block: it was cut off before the end of the code. {send} Keep it shorter."
    names = dict.fromkeys(name for block in blocks for name in _names(block.text))
    listed = ", ".join(f"`{name}`" for name in list(names)[:_MOST_NAMES])
    there = f"it defines {listed}" if listed else "it defines no functions"
    what = "The code block does not define" if len(blocks) == 1 else f"None of the {len(blocks)} code blocks defines"
    return f"{what} the entry point `{entry}`; {there}. {send}"


# ---- what a text defines


def _defines(text: str, entry: str) -> bool:
    if entry in functions_in(text):
        return True
    defined = definitions_in(text)
    if defined is not None:
        return entry in defined.own
    # Text that is not valid Python is taken as the kernel all the same: judging it reports the error to its author.
    name = re.escape(entry)
    return re.search(rf"^(?:async\s+)?def\s+{name}\s*\(|^class\s+{name}\b|^{name}\s*=", text, re.M) is not None


def _mentions_in_cpp(text: str, entry: str) -> bool:
    """Whether the text is C++ that mentions the function: `functions_in` misses definitions by macros, for instance."""
    return "#include" in text and mentions(text, entry)


def _imports(text: str, entry: str) -> bool:
    """Whether the text binds the name at all. A block that only imports it counts if no block defines it."""
    defined = definitions_in(text)
    return defined is not None and entry in defined.names


def _names(text: str) -> tuple[str, ...]:
    defined = definitions_in(text)
    return functions_in(text) if defined is None else defined.functions


def _is_bare_code(reply: str, entry: str) -> bool:
    """Whether the reply is code alone. Prose may happen to be valid Python, but does not define the entry point."""
    defined = definitions_in(reply)
    is_native = reply.lstrip().startswith(("#include", "//", "/*")) and entry in functions_in(reply)
    return is_native or (defined is not None and entry in defined.names)


# ---- fences


def _blocks(reply: str, entry: str) -> Iterator[_Block]:
    lines = reply.split("\n")
    start = 0
    while start < len(lines):
        opening = _OPENING.match(lines[start])
        if opening is None:
            start += 1
            continue
        closing = (number for number in range(start + 1, len(lines)) if _closes(lines[number], opening[2]))
        closing_lines = list(islice(closing, _MOST_CLOSING_FENCES))
        end = _closing_line(lines, start, closing_lines, entry)
        body = lines[start + 1 : end]
        yield _Block("\n".join(_dedented(body, opening[1])).rstrip() + "\n", end is not None)
        if end is None:
            return
        start = end + 1


def _names_a_language(line: str) -> bool:
    opening = _OPENING.match(line)
    return opening is not None and opening[3] != ""


def _closes(line: str, fence: str) -> bool:
    """Whether the line closes a block: the fence's character, at least as often, and nothing else."""
    bare = line.strip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]}


def _closing_line(lines: list[str], start: int, closing_lines: list[int], entry: str) -> int | None:
    """The line that ends the block: the first closing fence up to which the text is Python that defines ``entry``.

    If there is none, the first closing fence; None if no fence closes the block.
    """
    if not closing_lines:
        return None
    for number in closing_lines:
        if any(_names_a_language(line) for line in lines[closing_lines[0] + 1 : number]):
            break  # another block begins in between
        defined = definitions_in("\n".join(lines[start + 1 : number]))
        if defined is not None and entry in defined.own:
            return number
    return closing_lines[0]


def _dedented(lines: list[str], indentation: str) -> list[str]:
    """The lines without the indentation of the fence, for blocks inside lists."""
    return [line.removeprefix(indentation) for line in lines]
