"""parse∘print = id, and equal text <=> equal module."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.dims import parse_dim
from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ir.sharding import parse_sharding
from compiler.ir.text import equal, parse_document, parse_module, parse_type, print_document, print_module
from compiler.ir.types import TensorType
from compiler.ir.verify import faults
from compiler.ir.weights import Tensor
from tests.ir.strategies import any_dim, literals, modules, shardings, tensors, text, types


@given(st.one_of(st.none(), text), modules())
def test_parse_of_print_is_the_module(pipeline, module):
    assert faults(module) == []
    printed = print_document(pipeline, module)
    found, again = parse_document(printed)
    assert equal(again, module)
    assert found == pipeline
    assert print_document(found, again) == printed


@settings(max_examples=30)
@given(modules(), modules())
def test_equal_text_is_equal_module(left, right):
    assert equal(left, right) == (print_module(left) == print_module(right))
    assert equal(left, left.copy())


@given(types())
def test_types(type_):
    assert parse_type(str(type_)) == type_


@given(any_dim)
def test_dims(dim):
    assert parse_dim("?" if dim is None else str(dim)) == dim


@given(st.integers(0, 3).flatmap(shardings))
def test_shardings(sharding):
    assert parse_sharding(str(sharding)) == sharding


@given(literals)
def test_literals_to_the_bit(literal):
    graph = Graph("main")
    graph.add("Const", attrs={"value": literal}, types=(TensorType(literal.dtype, literal.shape),), name="c")
    found = parse_module(print_module(Module("m", {"main": graph}))).entries["main"].node("c").attrs["value"]
    assert found == literal
    assert type(found) is type(literal)


@given(tensors())
def test_tensors_have_the_dtype_they_say(tensor):
    assert tensor.array.dtype == tensor.dtype.numpy
    assert Tensor(tensor.dtype, tensor.array) == tensor
