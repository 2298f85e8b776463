"""Sizes as values: constants, or arithmetic on the shape of a value that has the dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.ir.dims import Atom, Expr, KnownDim
from compiler.ir.errors import IrError
from compiler.ir.graph import Attr, Graph, Value
from compiler.ir.types import DType
from compiler.ir.weights import Tensor
from compiler.rewrite.emitter import Emitter

_INT32 = DType("int32")


@dataclass
class Sizes:
    """Symbolic sizes as values: `vector((ceil(b/2), 128))` packs `(b + 1) // 2`, read off the shape of a value that has a dimension `b`."""

    emitter: Emitter
    origin: tuple[str, ...] = ("sizes",)
    _scalars: dict[tuple[KnownDim, str], Value] = field(default_factory=dict)
    _vectors: dict[tuple[tuple[KnownDim, ...], str], Value] = field(default_factory=dict)
    _atoms: dict[Atom, Value] = field(default_factory=dict)
    _sources: dict[str, tuple[Value, int]] | None = None

    def vector(self, dims: Sequence[KnownDim], dtype: DType = _INT32) -> Value:
        """A 1-D tensor of the sizes."""
        key = (tuple(dims), str(dtype))
        if key not in self._vectors:
            self._vectors[key] = self._vector(tuple(dims), dtype)
            self.emitter.contents[self._vectors[key]] = tuple(dims)
        return self._vectors[key]

    def _vector(self, dims: tuple[KnownDim, ...], dtype: DType) -> Value:
        if all(isinstance(d, int) for d in dims):
            return self._constant(np.array(dims, dtype.numpy), dtype)
        packed = self._add("Pack", [self.scalar(d) for d in dims], {})
        return packed if dtype == _INT32 else self._add("Cast", [packed], {"DstT": dtype})

    def scalar(self, dim: KnownDim, dtype: DType = _INT32) -> Value:
        """A 0-d tensor of the size; any numeric type."""
        key = (dim, str(dtype))
        if key not in self._scalars:
            self._scalars[key] = self._scalar(dim, dtype)
            self.emitter.contents[self._scalars[key]] = dim
        return self._scalars[key]

    def _scalar(self, dim: KnownDim, dtype: DType) -> Value:
        if isinstance(dim, int):
            return self._constant(np.array(dim, dtype.numpy), dtype)
        return self._polynomial(dim) if dtype == _INT32 else self._add("Cast", [self.scalar(dim)], {"DstT": dtype})

    def _polynomial(self, dim: Expr) -> Value:
        total: Value | None = None
        for monomial, coefficient in dim.terms:
            term: Value | None = None if coefficient == 1 and monomial else self.scalar(coefficient)
            for atom in monomial:
                factor = self._atoms[atom] = self._atoms.get(atom) or self._atom(atom)
                term = factor if term is None else self._add("Mul", [term, factor], {})
            assert term is not None
            total = term if total is None else self._add("AddV2", [total, term], {})
        assert total is not None
        return total

    def _atom(self, atom: Atom) -> Value:
        if atom.op == "symbol":
            return self._symbol(atom.name)
        left, right = (self.scalar(a) for a in atom.arguments)
        if atom.op in ("max", "min"):
            return self._add("Maximum" if atom.op == "max" else "Minimum", [left, right], {})
        if atom.op == "ceil":
            left = self._add("AddV2", [left, self._add("Sub", [right, self.scalar(1)], {})], {})
        return self._add("FloorDiv", [left, right], {})

    def _symbol(self, name: str) -> Value:
        if self._sources is None:
            self._sources = _dimension_sources(self.emitter.graph)
        if name not in self._sources:
            raise IrError(f"graph {self.emitter.graph.name!r}: no value has a dimension that is {name!r}, its size cannot be read")
        source, dim = self._sources[name]
        shape = self._add("Shape", [source], {})
        bounds = [self._constant(np.array([v], np.int32), _INT32) for v in (dim, dim + 1, 1)]
        return self._add("StridedSlice", [shape, *bounds], {"shrink_axis_mask": 1})

    def _constant(self, array: np.ndarray, dtype: DType) -> Value:
        return self.emitter.constant(Tensor(dtype, array), name="size/const", origin=self.origin)

    def _add(self, op: str, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> Value:
        return self.emitter.add(op, operands, attrs, name=f"size/{op.lower()}", origin=self.origin)


def _dimension_sources(graph: Graph) -> dict[str, tuple[Value, int]]:
    """For each symbol, the first value (inputs before others) with a dimension that is exactly it."""
    found: dict[str, tuple[Value, int]] = {}
    order = [*graph.inputs, *(n for n in graph.order() if n not in graph.inputs)]
    for name in order:
        for port, type_ in enumerate(graph.node(name).types):
            for index, dim in enumerate(type_.shape or ()):
                if isinstance(dim, Expr) and str(dim).isidentifier():
                    found.setdefault(str(dim), (Value(name, port), index))
    return found
