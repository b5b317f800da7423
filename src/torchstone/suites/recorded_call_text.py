"""Reads and writes the text of a recorded call: ``((T([2, 3], f16), 1e-05), {'dtype': torch.float16})``.

The text comes from files of unknown authors, so a parser for this grammar reads it, and nothing is evaluated. Wrong
text is an error with line and column. What is written can be read back; spaces, trailing commas and the kind of quotes
may differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

import msgspec

from torchstone.errors import UsageError

SHORT_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4": "float8_e4m3fn",
    "f8e5": "float8_e5m2", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "b8": "bool",
    "c32": "complex32", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
_LONG_TO_SHORT = {long: short for short, long in SHORT_DTYPES.items()}
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
_MEMORY_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")
_MOST_DEPTH = 32
"""Most lists inside one another."""


class TraceTextError(UsageError):
    """Text that is not a recorded call."""

    def __init__(self, line: int, column: int, problem: str) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")
        self.line = line
        self.column = column
        self.problem = problem


class TracedTensor(msgspec.Struct, frozen=True):
    """``T([2, 3], f16, stride=(3, 1))``."""

    shape: tuple[int, ...]
    dtype: str
    """torch's name without the prefix."""
    strides: tuple[int, ...] | None = None


class TorchName(msgspec.Struct, frozen=True):
    """``torch.float16``, ``f16`` as an argument, ``torch.strided``, ``torch.channels_last``."""

    kind: str
    """``dtype``, ``layout`` or ``memory_format``."""
    name: str


Value = TracedTensor | TorchName | bool | int | float | str | None | tuple["Value", ...]
"""A value of an argument. Lists and tuples are both tuples here, since operators treat them alike."""


class TracedCall(msgspec.Struct, frozen=True):
    """Arguments by position and by name."""

    args: tuple[Value, ...]
    kwargs: dict[str, Value] = {}


def parse_call(text: str) -> TracedCall:
    """Read ``((…), {…})``."""
    parser = _Parser(text)
    parser.expect("(")
    args = parser.values_until("(", ")")
    parser.expect(",")
    kwargs = parser.mapping()
    parser.accept(",")
    parser.expect(")")
    parser.expect_end()
    return TracedCall(args, kwargs)


def format_call(call: TracedCall) -> str:
    """Write the text of a call, as `parse_call` reads it."""
    args = ", ".join(_format(value) for value in call.args) + ("," if len(call.args) == 1 else "")
    kwargs = ", ".join(f"{name!r}: {_format(value)}" for name, value in call.kwargs.items())
    return f"(({args}), {{{kwargs}}})"


def _format(value: Value) -> str:
    match value:
        case TracedTensor(shape=shape, dtype=dtype, strides=strides):
            layout = "" if strides is None else f", stride={strides}"
            return f"T({list(shape)}, {_LONG_TO_SHORT[dtype]}{layout})"
        case TorchName(kind=kind, name=name):
            return _LONG_TO_SHORT[name] if kind == "dtype" and name in _LONG_TO_SHORT else f"torch.{name}"
        case tuple():
            return "[" + ", ".join(_format(item) for item in value) + "]"
        case float() if math.isnan(value):
            return "nan"
        case float() if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        case _:
            return repr(value)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKENS = re.compile(
    r"""\s*(?:
        (?P<number>[-+]?(?:inf\b|nan\b|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
      | (?P<string>'[^'\\\n]*'|"[^"\\\n]*")
      | (?P<sign>[()\[\]{},:=])
      | (?P<end>\Z))""",
    re.VERBOSE,
)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while True:
        match = _TOKENS.match(text, at)
        if match is None:
            at = len(text) - len(text[at:].lstrip())
            _fail(text, at, f"'{text[at]}' has no place here")
        kind = str(match.lastgroup)
        if kind == "end":
            return [*found, _Token("end", "the end", len(text))]
        found.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()


def _fail(text: str, at: int, what: str) -> NoReturn:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    near = text[max(0, at - 20) : at + 20].replace("\n", " ")
    raise TraceTextError(line, column, f"{what} (near '{near}').")


class _Parser:
    """Parser by recursive descent, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._token
        self._next += token.kind != "end"
        return token

    def _fail(self, what: str) -> NoReturn:
        _fail(self._text, self._token.at, what)

    def accept(self, sign: str) -> bool:
        """Consume the sign if it is the next token, and tell whether it was."""
        if self._token.kind == "sign" and self._token.text == sign:
            self._next += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            self._fail(f"expected '{sign}', got '{self._token.text}'")

    def expect_end(self) -> None:
        if self._token.kind != "end":
            self._fail(f"expected the end, got '{self._token.text}'")

    def values_until(self, opening: str, closing: str) -> tuple[Value, ...]:
        """Parse values between brackets, separated by commas. A comma may follow the last value."""
        self.expect(opening)
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            self._fail(f"more than {_MOST_DEPTH} lists inside one another")
        found: list[Value] = []
        while not self.accept(closing):
            found.append(self._value())
            if not self.accept(","):
                self.expect(closing)
                break
        self._depth -= 1
        return tuple(found)

    def mapping(self) -> dict[str, Value]:
        """Parse ``{'name': value, …}``."""
        self.expect("{")
        found: dict[str, Value] = {}
        while not self.accept("}"):
            if self._token.kind != "string":
                self._fail(f"expected the name of an argument in quotes, got '{self._token.text}'")
            name = self._take().text[1:-1]
            if name in found:
                self._fail(f"the argument '{name}' stands twice")
            self.expect(":")
            found[name] = self._value()
            if not self.accept(","):
                self.expect("}")
                break
        return found

    def _value(self) -> Value:
        token = self._token
        if token.kind == "sign" and token.text in "[(":
            return self.values_until(token.text, "]" if token.text == "[" else ")")
        if token.kind == "number":
            return _number(self._take().text)
        if token.kind == "string":
            return self._take().text[1:-1]
        if token.kind != "name":
            self._fail(f"expected a value, got '{token.text}'")
        return self._named()

    def _named(self) -> Value:
        name = self._token.text
        if name in _CONSTANTS:
            self._take()
            return _CONSTANTS[name]
        if name == "T":
            return self._tensor()
        short = name.removeprefix("torch.")
        if name in SHORT_DTYPES:
            found = TorchName("dtype", SHORT_DTYPES[name])
        elif name != short and short in _KINDS_OF_TORCH_NAMES:
            found = TorchName(_KINDS_OF_TORCH_NAMES[short], short)
        else:
            self._fail(f"unknown name '{name}'")
        self._take()
        return found

    def _tensor(self) -> TracedTensor:
        self._take()
        self.expect("(")
        shape = self._sizes()
        self.expect(",")
        if self._token.text not in SHORT_DTYPES:
            self._fail(f"expected a dtype ({', '.join(SHORT_DTYPES)}), got '{self._token.text}'")
        dtype = SHORT_DTYPES[self._take().text]
        strides = self._strides(len(shape)) if self.accept(",") else None
        self.expect(")")
        return TracedTensor(shape, dtype, strides)

    def _strides(self, dimensions: int) -> tuple[int, ...]:
        if self._token.text == "stride":
            self._take()
            self.expect("=")
        began = self._next
        strides = self._sizes()
        if len(strides) != dimensions:
            self._next = began
            self._fail(f"{len(strides)} strides for {dimensions} dimensions")
        return strides

    def _sizes(self) -> tuple[int, ...]:
        began = self._next
        opening = self._token.text
        if opening not in ("[", "("):
            self._fail(f"expected a list of sizes, got '{opening}'")
        sizes = self.values_until(opening, "]" if opening == "[" else ")")
        if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in sizes):
            self._next = began
            self._fail("sizes and strides are whole numbers, none below zero")
        return sizes  # type: ignore[return-value]


_CONSTANTS: Mapping[str, Value] = {"True": True, "False": False, "None": None, "inf": math.inf, "nan": math.nan}
_KINDS_OF_TORCH_NAMES = (
    dict.fromkeys(SHORT_DTYPES.values(), "dtype")
    | dict.fromkeys(_LAYOUTS, "layout")
    | dict.fromkeys(_MEMORY_FORMATS, "memory_format")
)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
