"""Who is meant by a name: a node, a layer it comes from, or a kind of operator or layer.

h                    the node of that name
hidden               all that comes from a scope `hidden`, or `hidden_1`: Keras numbers its scopes
model/hidden         scopes in a row
Conv2D, Dense        every operator of that op, and all that comes from layers named after that class: conv2d, conv2d_1, dense
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from compiler.ir.errors import CleaveError
from compiler.ir.graph import INPUT, Graph, Node

MOST_NEAR = 3
Named = tuple[str, str, Sequence[str]]
"""(node, op, origin)"""


def speaks_of(wanted: str, node: str, op: str, origin: Sequence[str]) -> bool:
    """Does the name `wanted` mean this node?"""
    if wanted in (node, op):
        return True
    scopes = wanted.strip("/").split("/")
    kind = _layer_name(wanted)
    return any(_within(scopes, name) or (kind is not None and _within([kind], name)) for name in (node, *origin))


def _layer_name(wanted: str) -> str | None:
    """The name Keras gives a layer of class `wanted`: `BatchNormalization` => `batch_normalization`; None for what is no class's name."""
    if not wanted[:1].isupper() or "/" in wanted:
        return None
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=[A-Z][a-z])", "_", wanted).lower()


def _within(wanted: Sequence[str], name: str) -> bool:
    scopes = name.split("/")
    return any(all(_is_scope(a, b) for a, b in zip(scopes[start:], wanted, strict=False)) for start in range(len(scopes) - len(wanted) + 1))


def _is_scope(scope: str, wanted: str) -> bool:
    return scope == wanted or (scope.startswith(f"{wanted}_") and scope[len(wanted) + 1 :].isdigit())


def named(graphs: Iterable[Graph]) -> list[Named]:
    """Everything of the graphs that a name can mean: all but inputs and constants."""
    return [(node.name, node.op, node.origin) for graph in graphs for node in graph if is_operator(node)]


def is_operator(node: Node) -> bool:
    return node.op not in (INPUT, "Const")


def nobody(wanted: str, known: Iterable[Named], what: str = "operator or layer") -> CleaveError:
    """One line that says that nothing is called so, with near names."""
    found = list(known)
    names = dict.fromkeys(name for node, op, _ in found for name in (node, op))
    names.update(dict.fromkeys(scope for _, _, origin in found for name in origin for scope in (name, *name.split("/"))))
    lower = {name.lower(): name for name in reversed(names)}
    near = [lower[n] for n in difflib.get_close_matches(wanted.lower(), lower, MOST_NEAR, 0.6)]
    some = ", ".join(sorted({node for node, _, _ in found})[: MOST_NEAR + 1])
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"expected one such as {some or 'none: there is no operator'}"
    return CleaveError(f"no {what} {wanted!r}; {hint}")
