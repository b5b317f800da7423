"""A Ray cluster of several nodes on this machine, in a process of its own: what Ray leaves open there ends with it.

``python ray_nodes.py COUNT`` reads commands (``add [RESOURCES]``, ``remove``) and answers each with a line: the
address first, then the id of the node. When its input closes it ends every process that it started.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

STORE_BYTES = 80 << 20
"""Ray's object store of each node: jobs and records are a few kilobytes."""


class Nodes:
    """The cluster, as tests see it. Its head has no slot."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, __file__, str(count)]
        self._program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.address = self._answer()

    def add(self, **resources: float) -> str:
        """A node more; its id."""
        return self._say(f"add {json.dumps(resources)}")

    def remove(self) -> str:
        """The oldest node is gone, without a word; its id."""
        return self._say("remove")

    def _say(self, words: str) -> str:
        assert self._program.stdin is not None
        self._program.stdin.write(words + "\n")
        self._program.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        """The line of the program's own: Ray prints others."""
        assert self._program.stdout is not None
        for line in self._program.stdout:
            if line.startswith("NODES "):
                return line.removeprefix("NODES ").strip()
        raise RuntimeError("the cluster ended")

    def close(self) -> None:
        """End every process."""
        self._program.communicate(timeout=60)


def main() -> None:
    """Start the cluster and carry out commands."""
    from ray.cluster_utils import Cluster

    here: dict[str, Any] = {"object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **here})
    nodes = [cluster.add_node(num_cpus=2, **here) for _ in range(int(sys.argv[1]))]
    try:
        print("NODES", cluster.address, flush=True)
        for line in sys.stdin:
            words, _, resources = line.strip().partition(" ")
            if words == "add":
                nodes.append(cluster.add_node(num_cpus=2, resources=json.loads(resources), **here))
                node = nodes[-1]
            else:
                node = nodes.pop(0)
                cluster.remove_node(node, allow_graceful=False)
            print("NODES", node.node_id, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
