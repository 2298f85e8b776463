"""Random modules, valid by construction: they keep every rule of `compiler.ir.verify.STRUCTURE`, and their ops mean nothing."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from compiler.ir.dims import Dim, add, ceil_div, floor_div, max_dim, min_dim, mul, symbol
from compiler.ir.graph import Attr, FunctionRef, Graph, ShapeAttr, Value
from compiler.ir.module import Module, Resource, Variable
from compiler.ir.sharding import COMBINES, Mesh, MeshAxis, Sharding
from compiler.ir.types import SHORT_NAMES, DType, TensorType
from compiler.ir.weights import Literal, Splat, Stores, Tensor, WeightRef

DTYPES = tuple(DType(name) for name in SHORT_NAMES)
ARRAY_DTYPES = tuple(dtype for dtype in DTYPES if dtype not in ("resource", "variant"))
FIXED_DTYPES = tuple(dtype for dtype in ARRAY_DTYPES if dtype != "string")
NARROW = {"int2": (-2, 1), "uint2": (0, 3), "int4": (-8, 7), "uint4": (0, 15)}
AXES = ("x", "y", "z")

text = st.text(st.characters(codec="utf-8"), max_size=6)
plain = st.from_regex(r"[A-Za-z0-9_.][A-Za-z0-9_./\-]{0,5}", fullmatch=True)
names = st.one_of(plain, text.filter(bool))
symbols = st.sampled_from(("b", "b1", "length"))


def dims() -> st.SearchStrategy[int | object]:
    """Integers and expressions over three symbols; divisors are positive integers."""
    leaves = st.one_of(st.integers(0, 9), symbols.map(symbol))

    def grow(inner: st.SearchStrategy) -> st.SearchStrategy:
        two = st.tuples(st.sampled_from((add, mul, max_dim, min_dim)), inner, inner).map(lambda t: t[0](t[1], t[2]))
        divided = st.tuples(st.sampled_from((ceil_div, floor_div)), inner, st.integers(1, 5)).map(lambda t: t[0](t[1], t[2]))
        return st.one_of(two, divided, inner.map(lambda d: mul(-1, d)))

    return st.recursive(leaves, grow, max_leaves=5)


any_dim: st.SearchStrategy[Dim] = st.one_of(st.none(), dims())
shapes = st.one_of(st.none(), st.lists(any_dim, max_size=3).map(tuple))


@st.composite
def shardings(draw: st.DrawFn, rank: int) -> Sharding:
    axes = draw(st.permutations(AXES))
    cut = [axes[: draw(st.integers(0, 2))], axes[2:]]
    taken = [tuple(cut[0]) if d == 0 else tuple(cut[1]) if d == 1 else () for d in range(rank)]
    used = {a for axes in taken for a in axes}
    partial = tuple((a, draw(st.sampled_from(COMBINES))) for a in AXES if a not in used and draw(st.booleans()))
    return Sharding(tuple(taken), partial, draw(st.integers(0, 2)))


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> TensorType:
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(shapes)
    if draw(st.integers(0, 9)) == 0:
        dtype = DType(f"{dtype}_ref")
    handle = draw(types(depth - 1)) if dtype == "resource" and depth and draw(st.booleans()) else None
    sharding = draw(shardings(len(shape))) if shape is not None and draw(st.booleans()) else None
    return TensorType(dtype, shape, sharding, handle)


static_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def arrays(draw: st.DrawFn, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Any bits: NaN payloads, infinities, -0.0 and denormals are as likely as the rest."""
    count = math.prod(shape)
    if dtype == "string":
        array = np.empty(count, object)
        array[:] = draw(st.lists(st.one_of(st.binary(max_size=5), text.map(str.encode)), min_size=count, max_size=count))
        return array.reshape(shape)
    if dtype in NARROW:
        return (
            np.array(draw(st.lists(st.integers(*NARROW[dtype]), min_size=count, max_size=count)), np.int64)
            .astype(dtype.numpy)
            .reshape(shape)
        )
    size = count * dtype.numpy.itemsize
    data = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    limit = 2 if dtype == "bool" else 16 if dtype == "float4_e2m1fn" else 256
    return (data.astype(np.int64) % limit).astype(np.uint8).view(dtype.numpy).reshape(shape)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(ARRAY_DTYPES))
    return Tensor(dtype, draw(arrays(dtype, draw(static_shapes))))


@st.composite
def splats(draw: st.DrawFn) -> Splat:
    dtype = draw(st.sampled_from(ARRAY_DTYPES))
    return Splat(Tensor(dtype, draw(arrays(dtype, ()))), draw(static_shapes))


@st.composite
def weight_refs(draw: st.DrawFn) -> WeightRef:
    shape = draw(static_shapes)
    whole = WeightRef(draw(st.sampled_from(("w0", "a store"))), draw(st.integers(0, 1 << 40)), draw(st.sampled_from(FIXED_DTYPES)), shape)
    starts = tuple(draw(st.integers(0, n)) for n in shape)
    return whole.slice(starts, tuple(draw(st.integers(0, n - s)) for n, s in zip(shape, starts, strict=True)))


literals: st.SearchStrategy[Literal] = st.one_of(tensors(), splats(), weight_refs())


def attrs(functions: tuple[str, ...] = ()) -> st.SearchStrategy[dict[str, Attr]]:
    shape_attrs = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3).map(tuple)).map(ShapeAttr)
    leaves: st.SearchStrategy[Attr] = st.one_of(
        st.integers(), st.floats(), st.booleans(), text, st.binary(max_size=4), st.sampled_from(DTYPES), shape_attrs, literals
    )
    references = st.sampled_from(functions).map(FunctionRef) if functions else st.nothing()
    leaves = st.one_of(leaves, references)
    return st.dictionaries(names, st.recursive(leaves, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4), max_size=3)


@st.composite
def graphs(draw: st.DrawFn, name: str, functions: tuple[str, ...] = (), variables: tuple[Variable, ...] = ()) -> Graph:
    """Nodes in an order of insertion that need not be a topological one; one data edge may be a back edge."""
    graph = Graph(name, draw(attrs(functions)))
    unused = draw(st.lists(names, unique=True, min_size=1, max_size=9))
    for node_name in unused[: draw(st.integers(0, 2))]:
        graph.add_input(node_name, draw(types()), origin=draw(st.lists(names, max_size=1)), attrs=draw(attrs()))
    for node_name in unused[len(graph.inputs) :]:
        if variables and draw(st.integers(0, 4)) == 0:
            _add_handle(graph, node_name, draw(st.sampled_from(variables)))
        else:
            draw(_node(graph, node_name, functions))
    values = _values(graph)
    if values and draw(st.booleans()):
        user = draw(st.sampled_from([n.name for n in graph if n.op == "Op"] or [None]))
        if user is not None:
            graph.set_operand(user, len(graph.operands(user)), draw(st.sampled_from(values)), back=True)
    results = draw(st.lists(st.sampled_from(values), max_size=3)) if values else []
    graph.set_outputs(zip(draw(st.lists(names, unique=True, min_size=len(results), max_size=len(results))), results, strict=True))
    return graph


def _add_handle(graph: Graph, name: str, variable: Variable) -> None:
    handle = TensorType(DType("resource"), (), handle=variable.type.with_sharding(None))
    graph.add("Variable", attrs={"ref": variable.name}, types=(handle,), name=name)


def _values(graph: Graph) -> list[Value]:
    return [Value(node.name, port) for node in graph for port in range(len(node.types))]


@st.composite
def _node(draw: st.DrawFn, graph: Graph, name: str, functions: tuple[str, ...]) -> None:
    values, earlier = _values(graph), [node.name for node in graph]
    graph.add(
        draw(st.one_of(st.just("Op"), st.just("Space>Op"), names.map(lambda n: f"op {n}"))),
        draw(st.lists(st.sampled_from(values), max_size=4)) if values else (),
        draw(attrs(functions)),
        draw(st.lists(types(), max_size=3)),
        name=name,
        device=draw(st.one_of(st.just(""), text)),
        origin=draw(st.lists(names, min_size=1, max_size=2)),
        controls=draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else (),
    )


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    axes = []
    for name in AXES:
        size = draw(st.integers(1, 3))
        shares = draw(st.one_of(st.just(()), st.lists(st.integers(1, 4), min_size=size, max_size=size).map(tuple)))
        axes.append(MeshAxis(name, size, shares))
    count = math.prod(a.size for a in axes)
    return Mesh(tuple(axes), tuple(draw(st.lists(text, min_size=count, max_size=count))))


@st.composite
def variables(draw: st.DrawFn, name: str) -> Variable:
    initial = draw(st.one_of(st.none(), literals))
    type_ = draw(types(0)) if initial is None else TensorType(initial.dtype, initial.shape)
    sharding = None if type_.shape is None or draw(st.booleans()) else Sharding(((),) * len(type_.shape))
    flags = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    return Variable(name, type_.with_sharding(None), initial, flags[0], draw(text), sharding, *flags[1:])


@st.composite
def modules(draw: st.DrawFn) -> Module:
    stores = Stores({"w0": Path("weights.bin"), "a store": Path("dir/other weights")})
    module = Module(draw(text), stores=stores, mesh=draw(meshes()), facts=frozenset({"annotated", draw(plain)}))
    module.sizes = draw(st.dictionaries(symbols, st.integers(1, 99)))
    for name in draw(st.lists(names, unique=True, max_size=2)):
        module.variables[name] = draw(variables(name))
    for name in draw(st.lists(names, unique=True, max_size=1)):
        module.resources[name] = Resource(name, draw(types(0)).with_sharding(None), draw(text))
    graph_names = draw(st.lists(names, unique=True, min_size=1, max_size=3))
    for name in graph_names[1:]:
        module.functions[name] = draw(graphs(name, tuple(module.functions)))
    module.entries[graph_names[0]] = draw(graphs(graph_names[0], tuple(module.functions), tuple(module.variables.values())))
    return module
