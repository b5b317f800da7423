"""Gives a varied call its own enumeration arguments back (`mode`, `reduction`), which must not be varied as sizes are.

Hidden variants must not change them like sizes, even where the number equals a size. For a number outside the
enumeration torch computes something and raises no error.
"""

from __future__ import annotations

import msgspec

from torchstone import operators, schema

_MODES = ("mode", "reduction")
"""How the names of such arguments end."""


def with_modes_of(case: schema.Case, variant: schema.Case) -> schema.Case:
    """The variant with the case's own modes."""
    names = operators.argument_names(case.operator)
    named = zip(names, case.args, variant.args, strict=False)
    args = tuple(old if name.endswith(_MODES) else new for name, old, new in named)
    kwargs = {name: case.kwargs[name] if name.endswith(_MODES) else new for name, new in variant.kwargs.items()}
    return msgspec.structs.replace(variant, args=args + variant.args[len(args) :], kwargs=kwargs)
