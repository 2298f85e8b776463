"""One node divided in every way enumerated for it, in one module: copies of it side by side, each annotated with one strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.execution import Arrays, RunResult
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh, MeshAxis
from compiler.ir.text import parse_module
from compiler.ir.verify import verify
from compiler.ops.effects import Bodies
from compiler.ops.queries import infer_graph, operation
from compiler.pipeline.base import ANNOTATED, TYPED, Context
from cost_model.cluster import Cluster
from cost_model.model import CostModel
from passes.split.expand import ExpandSplits
from passes.split.factors import ATTRIBUTE, attribute
from passes.split.partition import Partition
from passes.split.strategies import Enumerator, Strategy

SIZES = {"b": 9}


def mesh(*sizes: int) -> Mesh:
    """Axes d, or x and y, over CPU devices."""
    names = ("d",) if len(sizes) == 1 else ("x", "y")
    count = int(np.prod(sizes))
    return Mesh(tuple(map(MeshAxis, names, sizes)), tuple(f"/device:CPU:{k}" for k in range(count)))


def strategies(module: Module, graph: Graph, over: Mesh) -> dict[str, tuple[Strategy, ...]]:
    """Every strategy of every node but `whole`."""
    contents = infer_graph(module, graph).contents
    enumerator = Enumerator(module, graph, over, CostModel(Cluster.parse(f"cpu:{len(over.devices)}")), Bodies(module), frozenset())
    return {
        name: enumerator.consider(graph.node(name), operation(module, graph, name, contents)).strategies[1:]
        for name in graph.order()
        if graph.node(name).op != "Const"
    }


def in_every_way(text: str, target: str, over: Mesh) -> tuple[Module, dict[str, Strategy]]:
    """The module partitioned, with an output for each strategy of `target` (and each of its results), and the strategies by output."""
    module = parse_module(text)
    module.mesh, module.sizes = over, SIZES
    (graph,) = module.entries.values()
    node = graph.node(target)
    operands, found = graph.operands(target), dict[str, Strategy]()
    outputs = [(o.name, o.value) for o in graph.outputs]
    for i, strategy in enumerate(strategies(module, graph, over)[target]):
        assert strategy.assignment is not None
        annotated = {**node.attrs, ATTRIBUTE: attribute(strategy.assignment)}
        types = [t.with_sharding(s) for t, s in zip(node.types, strategy.results, strict=True)]
        name = graph.add(node.op, operands, annotated, types, name=f"{target}_{i}", origin=node.origin).name
        for port in range(len(types)):
            found[f"way_{i}_{port}"] = strategy
            outputs.append((f"way_{i}_{port}", Value(name, port)))
    graph.set_outputs(outputs)
    return partition(module), found


def partition(module: Module) -> Module:
    """Expanded, partitioned, proven (partition does) and verified."""
    module.facts = frozenset({TYPED, ANNOTATED})
    ExpandSplits().run(module, Context())
    verify(module)
    Partition().run(module, Context())
    module.facts = frozenset({TYPED, "partitioned"})
    verify(module)
    return module


def requests(module: Module, batches: Sequence[int], seed: int = 0, special: bool = False) -> list[Arrays]:
    """Normal numbers, or small integers, for each input; symbolic sizes are `batch`; `special`: ties, NaN and infinities among them."""
    (graph,) = module.entries.values()
    rng = np.random.default_rng(seed)
    made = []
    for batch in batches:
        arrays = {}
        for name in graph.inputs:
            type_ = graph.node(name).type
            shape = [d if isinstance(d, int) else batch for d in type_.shape or ()]
            drawn = rng.integers(0, 5, shape) if type_.dtype.is_integer else rng.standard_normal(shape)
            if special and not type_.dtype.is_integer:
                drawn = rng.choice([1.0, 2.0, np.nan, np.inf, -np.inf, -0.0, 3.0, 3.0], shape)
            arrays[name] = drawn.astype(type_.dtype.numpy)
        made.append(arrays)
    return made


def assert_all_alike(
    run: Callable[..., list[RunResult]], text: str, target: str, over: Mesh, tolerance: float = 2e-6, special: bool = False
) -> set[str]:
    """Every way of dividing `target` computes what the whole, beside them in one graph, does; returns the labels of the ways tried."""
    names = [o.name for (graph,) in [parse_module(text).entries.values()] for o in graph.outputs]
    module, ways = in_every_way(text, target, over)
    (graph,) = module.entries.values()
    dynamic = any(not isinstance(d, int) for name in graph.inputs for d in graph.node(name).type.shape or ())
    batches = (1, 9) if dynamic else (1,)
    given = [*requests(module, batches), *(requests(module, batches, special=True) if special else ())]
    for found in run(module, given, 4):
        assert found.error is None, found.error
        for way, strategy in ways.items():
            array = found.outputs[names[int(way.rpartition("_")[2])]]
            scale = float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) if array.dtype.kind == "f" else 0.0
            np.testing.assert_allclose(found.outputs[way], array, rtol=tolerance, atol=tolerance * scale, err_msg=strategy.label)
    return {strategy.label for strategy in ways.values()}


def divided(text: str, over: Mesh, factors: dict[str, dict[str, str]]) -> Module:
    """The module partitioned, its nodes annotated as said; the others are whole."""
    module = parse_module(text)
    module.mesh, module.sizes = over, SIZES
    (graph,) = module.entries.values()
    known = strategies(module, graph, over)
    for name, assignment in factors.items():
        found = {s.label: s for s in known[name]}
        strategy = found[",".join(f"{f}:{a}" for f, a in sorted(assignment.items()))]
        node = graph.node(name)
        graph.set_attrs(name, {**node.attrs, ATTRIBUTE: attribute(assignment)})
        graph.set_types(name, [t.with_sharding(s) for t, s in zip(node.types, strategy.results, strict=True)])
    return partition(module)


def assert_same(run: Callable[..., list[RunResult]], text: str, module: Module, tolerance: float = 2e-6) -> None:
    """The partitioned module computes what the text does, at two batches."""
    given = requests(module, (1, 9))
    for expected, found in zip(run(parse_module(text), given, 4), run(module, given, 4), strict=True):
        assert expected.error is None and found.error is None, (expected.error, found.error)
        for name, array in expected.outputs.items():
            np.testing.assert_allclose(found.outputs[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
