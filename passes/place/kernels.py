"""What each kind of device can run, as placement asks it: a service that the driver fills from TensorFlow's registry of kernels.

    Where on float16, GPU: yes          StringJoin, GPU: no, so it runs on the CPU of the GPU's task

Without the service every device runs everything, which is so where all devices are CPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.ir.errors import IrError
from compiler.ir.graph import INPUT, Attr, Graph
from compiler.ops.attributes import complete
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from cost_model.cluster import Cluster

_OURS = (INPUT, "Variable", "Resource", "Call")


@dataclass(frozen=True)
class Kernels:
    """`known(op, attributes, kind)`: has this kind of device a kernel for the op with these types?"""

    known: Callable[[str, Mapping[str, Attr], str], bool]

    def runs(self, graph: Graph, name: str, kind: str) -> bool:
        node = graph.node(name)
        if kind == "CPU" or node.op in _OURS or has(node, Trait.CONTROL_FLOW):
            return True
        try:
            attrs = complete(node.op, dict(node.attrs), [type_.dtype for type_ in graph.operand_types(name)])
        except IrError:
            return False  # an op whose types are not known is TensorFlow's to place
        return self.known(node.op, attrs, kind)


EVERYTHING = Kernels(lambda op, attrs, kind: True)


def accelerators(cluster: Cluster) -> tuple[str, ...]:
    """The kinds of devices to compute on that are no CPUs."""
    return tuple(sorted({device.kind for device in cluster.workers} - {"CPU"}))
