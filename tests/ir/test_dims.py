"""Symbolic dimensions are what integer arithmetic says at every size."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.dims import add, ceil_div, evaluate, exact_div, floor_div, max_dim, min_dim, mul, parse_dim, substitute, symbol, symbols
from compiler.ir.errors import IrError
from compiler.ir.sharding import MeshAxis, extent, offset
from tests.ir.strategies import dims

sizes = st.fixed_dictionaries({"b": st.integers(0, 50), "b1": st.integers(0, 50), "length": st.integers(0, 50)})
OPERATIONS = {add: lambda a, b: a + b, mul: lambda a, b: a * b, max_dim: max, min_dim: min}
DIVISIONS = {ceil_div: lambda a, n: -(-a // n), floor_div: lambda a, n: a // n}


@given(dims(), dims(), sizes, st.sampled_from(list(OPERATIONS)))
def test_operations_agree_with_integers(left, right, at, operation):
    expected = OPERATIONS[operation](evaluate(left, at), evaluate(right, at))
    assert evaluate(operation(left, right), at) == expected


@given(dims(), st.integers(1, 9), sizes, st.sampled_from(list(DIVISIONS)))
def test_divisions_agree_with_integers(dim, divisor, at, division):
    assert evaluate(division(dim, divisor), at) == DIVISIONS[division](evaluate(dim, at), divisor)


@given(dims(), st.sampled_from(["b", "b1", "length"]), st.integers(1, 4), sizes, st.sampled_from(list(DIVISIONS)))
def test_divisions_by_a_symbol(dim, name, factor, at, division):
    at = at | {name: at[name] + 1}
    divisor = mul(factor, symbol(name))
    assert evaluate(division(dim, divisor), at) == DIVISIONS[division](evaluate(dim, at), evaluate(divisor, at))


@given(dims(), dims(), sizes)
def test_substitute_is_evaluation_at_a_value(dim, value, at):
    value = max_dim(value, 0)  # a symbol stands for a size
    found = evaluate(substitute(dim, {"b": value}), at)
    assert found == evaluate(dim, at | {"b": evaluate(value, at)})


@given(dims(), sizes)
def test_substitute_numbers_evaluates(dim, at):
    assert substitute(dim, at) == evaluate(dim, at)


@given(dims())
def test_unknown_makes_all_unknown(dim):
    assert (substitute(dim, {"b": None}) is None) == ("b" in symbols(dim))


@given(dims(), dims(), dims())
def test_ring_laws_are_syntactic(a, b, c):
    assert add(a, b) == add(b, a)
    assert mul(a, b) == mul(b, a)
    assert mul(a, add(b, c)) == add(mul(a, b), mul(a, c))
    assert add(a, mul(-1, a)) == 0


@given(dims(), dims())
def test_exact_division_undoes_multiplication(dim, divisor):
    quotient = exact_div(dim, divisor)
    assert quotient is None or mul(quotient, divisor) == dim


@pytest.mark.parametrize("text", ["b", "7*b", "b + 3", "ceil(b/2)", "floor(b/3)", "max(a, b)", "b*b - 2*b + 1", "ceil((b + 1)/2)", "-b"])
def test_text_by_example(text):
    assert str(parse_dim(text)) == text


@pytest.mark.parametrize("text", ["", "b/2", "ceil(b)", "pow(b, 2)", "b.c", "'b'", "True", "b if b else c", "lambda: b", "2**b", "(" * 500])
def test_what_is_no_dimension(text):
    with pytest.raises(IrError, match="is not an expression"):
        parse_dim(text)


@pytest.mark.parametrize("name", ["1b", "max", "None", "if", "ﬁ", "a b"])
def test_what_is_no_symbol(name):
    with pytest.raises(IrError, match="is not usable"):
        symbol(name)


def test_a_symbol_without_a_size_is_named():
    with pytest.raises(IrError, match="'b1' has no size here"):
        evaluate(symbol("b1"), {"b": 1})


@given(st.integers(0, 50), st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, 3), min_size=n, max_size=n))))
def test_shards_cover_a_dimension(rows, axis):
    size, shares = axis
    mesh_axis = MeshAxis("x", size, tuple(shares) if sum(shares) else ())
    parts = [extent(symbol("b"), mesh_axis, i) for i in range(size)]
    found = [(evaluate(start, {"b": rows}), evaluate(count, {"b": rows})) for start, count in parts]
    assert found[0][0] == 0
    assert all(start + count == following for (start, count), (following, _) in pairwise(found))
    assert sum(found[-1]) == rows == evaluate(offset(symbol("b"), mesh_axis, size), {"b": rows})
    assert all(count >= 0 for _, count in found)
