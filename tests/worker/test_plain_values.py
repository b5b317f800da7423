"""Numbers that JSON has no word for arrive as what they were."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.protocol.json_framing import frame
from torchstone.protocol.plain_values import received_plain, sent_plain
from torchstone.protocol.replies import Done, PlainLeaf

HEADER_BYTES = len(frame(None)) - len(b"null")


@given(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats())
def test_a_plain_value_survives_the_wire(value: bool | int | float | None) -> None:
    sent = Done("t", plain_values=((sent_plain(value),),), odd_leaves=(PlainLeaf(sent_plain(value)),))
    found = msgspec.json.decode(frame(sent)[HEADER_BYTES:], type=Done)
    for told in (found.plain_values[0][0], found.odd_leaves[0].value):  # type: ignore[union-attr]
        got = received_plain(told)
        assert type(got) is type(value)
        assert got == value or (isinstance(value, float) and math.isnan(value) and math.isnan(got))  # type: ignore[arg-type]


def test_other_words_are_no_plain_values() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"type": "done", "token": "t", "plain_values": [["infinity"]]}', type=Done)
