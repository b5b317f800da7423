"""Restores the enumeration arguments of a call (`mode`, `reduction`) when its sizes vary: they are numbers, not sizes.

A hidden variant changes integer arguments that equal a size. It must not change an enumeration argument, even if its
number equals a size: for a number outside the enumeration, torch computes something and raises no error.
"""

from __future__ import annotations

import msgspec

from torchstone import operators, schema

_NAME_ENDINGS = ("mode", "reduction")
"""Endings of the names of enumeration arguments."""


def with_enumeration_arguments_of(case: schema.Case, variant: schema.Case) -> schema.Case:
    """The variant with the enumeration arguments of the case."""
    names = operators.argument_names(case.operator)
    named = zip(names, case.args, variant.args, strict=False)
    args = tuple(old if name.endswith(_NAME_ENDINGS) else new for name, old, new in named)
    kwargs = {name: case.kwargs[name] if name.endswith(_NAME_ENDINGS) else new for name, new in variant.kwargs.items()}
    return msgspec.structs.replace(variant, args=args + variant.args[len(args) :], kwargs=kwargs)
