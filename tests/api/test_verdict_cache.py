"""Kept verdicts are those of the same kind of machine with the same sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import made_records as making
from torchstone.api import Evaluation, verdict_cache
from torchstone.api.settings import Settings
from torchstone.api.verdict_cache import VerdictCache, cache_key
from torchstone.isolation.layer_probe import layers_here
from torchstone.schema import Crashed, Gpu, Hardware, Layer, Node, Software

SETTINGS = Settings(executor="ray")
SOFTWARE = Software("0.1.0", "3.11.7", "linux", {"torch": "2.13.0+cu130"}, "13.0", "580.1")
ALL = (Layer("files", True), Layer("network", True))


def node(name: str = "a", gpu: str = "NVIDIA H100", layers: tuple[Layer, ...] = ALL, **changes: Any) -> Node:
    hardware = Hardware("EPYC", 8, 1 << 30, (Gpu(0, gpu, f"GPU-{name}", 1 << 30),))
    return Node(name, hardware, msgspec.structs.replace(SOFTWARE, **changes), layers)


def key(*nodes: Node, device: str = "cuda") -> str:
    return cache_key((), SETTINGS, device, nodes)


@pytest.mark.parametrize(
    "other",
    [
        node(gpu="NVIDIA H200"),
        node(layers=(Layer("files", False, "no user namespaces"), Layer("network", True))),
        node(driver="570.9"),
        node(packages={"torch": "2.12.1+cu130"}),
    ],
)
def test_a_verdict_of_another_kind_of_node_is_not_used(other: Node) -> None:
    assert key(other) != key(node())
    assert key(node(), other) not in (key(node()), key(other))


def test_a_node_that_is_alike_may_answer_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key(node("a")) == key(node("b")) == key(node("b"), node("a"))


def test_on_a_cpu_the_gpus_of_a_node_do_not_count() -> None:
    assert key(node(), device="cpu") == key(node(gpu="NVIDIA H200"), device="cpu")


def test_a_verdict_under_fewer_layers_is_not_used_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    full = cache_key((), Settings(), "cpu")
    assert full == cache_key((), Settings(), "cpu")
    fewer = tuple(msgspec.structs.replace(layer, active=False) for layer in layers_here("cpu"))
    monkeypatch.setattr(verdict_cache, "layers_here", lambda kind, isolation: fewer)
    assert cache_key((), Settings(), "cpu") != full


def test_a_speedup_that_noise_has_hidden_is_measured_again(tmp_path: Path) -> None:
    cache, timed = VerdictCache(tmp_path), making.case(timed=True)
    noisy = making.record(of=timed, measured=making.measurement(rounds=1))
    quiet = making.record(of=timed, measured=making.measurement())
    wrong = making.record(Crashed("check", "exception", "no"))
    kept = {"noisy": (noisy,), "one_noisy": (quiet, noisy), "quiet": (quiet,), "noisy_and_wrong": (noisy, wrong)}
    for key, records in kept.items():
        cache.keep(key, Evaluation("aten.relu.default", records))
    assert {key for key in kept if cache.get("aten.relu.default", key)} == {"quiet", "noisy_and_wrong"}
