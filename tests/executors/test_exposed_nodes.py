"""Nodes on which a kernel can reach the sockets of Ray are named before a run."""

from __future__ import annotations

from torchstone.executors.judge_site import exposed_to_ray
from torchstone.executors.node_judge import described
from torchstone.schema import Hardware, Layer, Node, Software, decode

SOFTWARE = Software("0.1.0", "3.11.7", "linux")


def test_a_node_without_the_layer_files_is_named_with_the_reason() -> None:
    nodes = [
        Node("a", Hardware("EPYC", 8, 1 << 30), SOFTWARE, (Layer("files", True), Layer("network", False))),
        Node("b", Hardware("EPYC", 8, 1 << 30), SOFTWARE, (Layer("files", False, "no mount namespaces"),)),
        Node("c", Hardware("EPYC", 8, 1 << 30), SOFTWARE),
    ]
    (warning,) = exposed_to_ray(nodes)
    assert warning.startswith("node b refuses the layer 'files' (no mount namespaces)")
    assert "--isolation strict" in warning


def test_a_node_tells_the_layers_that_a_worker_there_has() -> None:
    from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

    told = decode(described("cpu"), Node)
    pool = WorkerPool(WorkerOptions(spares=0))
    try:
        worker = pool.take()
        held = {layer.name: layer.active for layer in worker.layers}
        worker.kill()
    finally:
        pool.close()
    assert {layer.name: layer.active for layer in told.layers} == held
    assert decode(described(), Node).layers == ()
