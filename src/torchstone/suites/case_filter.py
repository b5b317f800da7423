"""Parses expressions that choose cases by name, as pytest's ``-k``: ``relu and not (bf16 or empty)``.

A word matches if it is part of the case's operator or label, in upper or lower case. A word in quotes may hold blanks
and parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from torchstone.errors import UsageError

Matches = Callable[[str], bool]
"""Whether a text fits the expression."""

_TOKEN = re.compile(r"""\s*(?:(?P<mark>[()])|'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<word>[^\s()'"]+))""")
_OPERATORS = ("and", "or", "not")


class _Token(NamedTuple):
    text: str
    column: int
    """Counted from 1."""
    kind: str
    """``word``, ``and``, ``or``, ``not``, ``(``, ``)`` or ``end``."""


def parse_expression(text: str) -> Matches:
    """A function that tells whether a text fits. Raises `UsageError` with the column of an error in the expression."""
    return _Parser(text).parse()


class _Parser:
    """Recursive descent, one method for each level: or, and, not, word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)

    def parse(self) -> Matches:
        found = self._or_expression()
        if self._next() != "end":
            raise self._expected("'and' or 'or'")
        return found

    def _next(self) -> str:
        return self._tokens[0].kind

    def _or_expression(self) -> Matches:
        sides = [self._and_expression()]
        while self._next() == "or":
            self._tokens.pop(0)
            sides.append(self._and_expression())
        return lambda text: any(side(text) for side in sides)

    def _and_expression(self) -> Matches:
        sides = [self._operand()]
        while self._next() == "and":
            self._tokens.pop(0)
            sides.append(self._operand())
        return lambda text: all(side(text) for side in sides)

    def _operand(self) -> Matches:
        match self._next():
            case "not":
                self._tokens.pop(0)
                denied = self._operand()
                return lambda text: not denied(text)
            case "(":
                self._tokens.pop(0)
                inner = self._or_expression()
                if self._next() != ")":
                    raise self._expected("')'")
                self._tokens.pop(0)
                return inner
            case "word":
                word = self._tokens.pop(0).text.lower()
                return lambda text: word in text.lower()
        raise self._expected("a word, 'not' or '('")

    def _expected(self, what: str) -> UsageError:
        token = self._tokens[0]
        found = "the end" if token.kind == "end" else f"'{token.text}'"
        return _syntax_error(self._text, token.column, f"expected {what}, found {found}")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            quote = next(at for at in range(place, end) if not text[at].isspace())
            raise _syntax_error(text, quote + 1, f"the quote {text[quote]} is not closed")
        name = str(match.lastgroup)
        word = match[name]
        kind = word if name == "mark" or (name == "word" and word in _OPERATORS) else "word"
        found.append(_Token(word, match.start(name) + 1, kind))
        place = match.end()
    return [*found, _Token("", end + 1, "end")]


def _syntax_error(text: str, column: int, problem: str) -> UsageError:
    marked = f"{text[: column - 1]}>>>{text[column - 1 :]}"
    return UsageError(f"-k is wrong at column {column}: {problem}. Here: {marked}")
