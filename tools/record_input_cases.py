"""Choose the cases of ``tests/judging/golden/input_cases.jsonl.gz`` again: 400 of smoke and opinfo, with gradients.

    python tools/record_input_cases.py       # takes some ten minutes

Opinfo's operators come in turn, in several dtypes, each with cases that differ in the shape of their arguments. Write
the digests again afterwards: ``TORCHSTONE_WRITE_GOLDEN=1 make test ARGS="tests/judging/test_input_digests.py"``.
"""

from __future__ import annotations

import gzip
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from torchstone import registry, schema
from torchstone.suites.base import CaseQuery, ListedSuite
from torchstone.suites.selection import select_cases

TARGET = Path(__file__).parents[1] / "tests" / "judging" / "golden" / "input_cases.jsonl.gz"
TOTAL = 400
_FROM_SMOKE = 100
_FROM_OPINFO = {"float32": 215, "int64": 26, "float16": 26, "complex64": 18}
_GRADIENTS = 24
_MOST_ELEMENTS = 1 << 11
"""Of most cases: the test must be quick."""
_LARGE = (1 << 14, 1 << 16)
"""Elements of the few cases that are large: these meet other plans."""
_MODELS = {
    "one_layer": ("torch.nn.functional.layer_norm(x, (16,))", (8, 16)),
    "three_of_each_row": ("x.topk(3)[0].relu()", (8, 16)),
}
_ATTENTION = "aten.scaled_dot_product_attention.default"


def main() -> None:
    smoke = select_cases("smoke", registry.suites.factory("smoke")(), CaseQuery(mode="fwd+bwd"))
    found = [*_in_turn(smoke, _FROM_SMOKE), *_large(smoke), *_models(), _attention()]
    for dtype, count in _FROM_OPINFO.items():
        found += _in_turn(_opinfo(dtype), count)
    forward = [case for case in found if case.suite == "opinfo"]
    gradients = select_cases("opinfo", ListedSuite(forward), CaseQuery(mode="bwd"))
    found += _in_turn(gradients, _GRADIENTS)
    chosen = list({case.key: case for case in found}.values())[:TOTAL]
    text = b"\n".join(map(msgspec.json.encode, chosen))
    TARGET.write_bytes(gzip.compress(text, mtime=0))
    print(f"{len(chosen)} cases of {len({case.operator for case in chosen})} operators in {TARGET}.")


def _opinfo(dtype: str) -> Iterable[schema.Case]:
    """From files of cases given on the command line (``float32=PATH``), or from the suite."""
    given = dict(each.split("=", 1) for each in sys.argv[1:])
    if dtype not in given:
        return select_cases("opinfo", registry.suites.factory("opinfo")(), CaseQuery(dtypes=(dtype,)))
    return [msgspec.json.decode(line, type=schema.Case) for line in Path(given[dtype]).read_bytes().splitlines()]


def _in_turn(cases: Iterable[schema.Case], count: int) -> list[schema.Case]:
    """So many small ones, every operator in turn; of an operator the kinds of arguments in turn, larger ones first."""
    by_operator: dict[str, dict[str, list[schema.Case]]] = defaultdict(lambda: defaultdict(list))
    for case in sorted(cases, key=_elements, reverse=True):
        if _elements(case) <= _MOST_ELEMENTS:
            by_operator[case.operator][_kind(case)].append(case)
    queues = [_round_robin(kinds.values()) for kinds in by_operator.values()]
    return list(itertools.islice(_round_robin(queues), count))


def _round_robin(queues: Iterable[Iterable[schema.Case]]) -> Iterator[schema.Case]:
    rows = itertools.zip_longest(*queues)
    return (case for row in rows for case in row if case is not None)


def _kind(case: schema.Case) -> str:
    recipes = schema.tensors_of(case)
    return " ".join(f"{len(recipe.shape)}{type(recipe.fill).__name__}{recipe.dtype}" for recipe in recipes)


def _large(cases: Iterable[schema.Case]) -> list[schema.Case]:
    """One of each operator."""
    fitting = (case for case in cases if _LARGE[0] < _elements(case) <= _LARGE[1])
    return list({case.operator: case for case in fitting}.values())


def _models() -> list[schema.Case]:
    return [_model(name, body, shape) for name, (body, shape) in _MODELS.items()]


def _model(name: str, body: str, shape: tuple[int, ...]) -> schema.Case:
    text = f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {body}\n"
    text += f"def get_inputs():\n    return [torch.randn{shape}]\ndef get_init_inputs():\n    return []\n"
    problem = schema.SourceFiles((schema.SourceFile(f"{name}.py", text),), "Model", name)
    arguments = (schema.Sequence(()), schema.Tensor(shape, "float32", schema.Normal()))
    return schema.Case("kernelbench", f"kernelbench.{name}.default", arguments, jitter=False, model=problem)


def _attention() -> schema.Case:
    """With dropout, which no opinfo case has."""
    tensors = tuple(schema.Tensor((1, 2, 16, 8), "float32", schema.Normal()) for _ in range(3))
    return schema.Case("smoke", _ATTENTION, (*tensors, schema.Scalar(None), schema.Scalar(0.5)))


def _elements(case: schema.Case) -> int:
    return sum(math.prod(recipe.shape) for recipe in schema.tensors_of(case))


if __name__ == "__main__":
    main()
