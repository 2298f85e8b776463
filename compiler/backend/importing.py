"""An emitted graph put into the graph that is being traced: Placeholders give way to the tensors they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2


def call_graph(graph_def: graph_pb2.GraphDef, feeds: Mapping[str, Any], fetches: Sequence[str]) -> list[Any]:
    """The tensors named by `fetches`, computed from `feeds` (tensor names -> tensors)."""
    body = graph_pb2.GraphDef(versions=graph_def.versions, library=graph_def.library)
    body.node.extend(node for node in graph_def.node if node.op != "Placeholder")
    used = {name for node in body.node for name in node.input}
    given = {name: tensor for name, tensor in feeds.items() if name in used or name.removesuffix(":0") in used}
    results: list[Any] = tf.graph_util.import_graph_def(body, input_map=given, return_elements=list(fetches), name="cleave")
    return results
