"""Which nodes may judge together."""

from __future__ import annotations

import msgspec
import pytest

from torchstone.errors import InfrastructureError, UsageError
from torchstone.executors.judge_site import differences, require_alike, require_one_type
from torchstone.schema import Gpu, Hardware, Node, Software

HERE = Software("0.1.0", "3.11.7", "linux", {"torch": "2.13.0+cpu"})
THERE = Software("0.1.0", "3.11.7", "linux", {"torch": "2.13.0+cu130"}, "13.0", "580.1")


def node(name: str, gpu: str = "NVIDIA H100", **changes: object) -> Node:
    hardware = Hardware("EPYC", 8, 1 << 30, (Gpu(0, gpu, f"GPU-{name}", 1 << 30),))
    return Node(name, hardware, msgspec.structs.replace(THERE, **changes))


def test_a_head_with_another_build_of_the_same_torch_may_plan() -> None:
    require_alike([node("a"), node("b")], HERE)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"torchstone": "0.0.9"}, "b has Torchstone 0.0.9, this machine has 0.1.0"),
        ({"packages": {"torch": "2.12.1+cu130"}}, "b has torch 2.12.1, this machine has 2.13.0"),
        ({"packages": {"torch": "2.13.0+cu126"}}, r"b has torch 2.13.0\+cu126, a has 2.13.0\+cu130"),
        ({"packages": {}}, "b has torch not at all, this machine has 2.13.0"),
        ({"driver": "570.9"}, "b has driver 570.9, a has 580.1"),
    ],
)
def test_other_versions_are_refused_by_name(changes: dict[str, object], told: str) -> None:
    with pytest.raises(InfrastructureError, match=f"versions differ between nodes: {told}.*Install the same"):
        require_alike([node("a"), node("b", **changes)], HERE)
    assert differences(node("b", **changes), HERE, node("a"))


def test_several_types_of_gpu_need_a_choice() -> None:
    require_one_type([node("a"), node("b")], "")
    with pytest.raises(UsageError, match=r"several types: NVIDIA A100, NVIDIA H100\. Choose one with --gpu TYPE"):
        require_one_type([node("a"), node("b", "NVIDIA A100")], "")
