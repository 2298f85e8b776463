"""Dumping, reading and verifying 20,000 nodes after every pass is affordable.  Bounds are ten times what one slow core takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from compiler.ir.dims import symbol
from compiler.ir.equal import equal
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from compiler.ir.types import DType, TensorType
from compiler.ir.verify import verify


@pytest.fixture(scope="module")
def big() -> Module:
    graph = Graph("main")
    type_ = TensorType("float32", (symbol("b"), 128))
    shared = value = graph.add_input("x", type_)
    for i in range(20_000):
        attrs = {"padding": "SAME", "strides": (1, 2, 2, 1), "dtype": DType("float32")}
        value = Value(graph.add("Op", [value, shared], attrs, [type_], name=f"block/{i}/add", origin=[f"layer{i}"]).name)
    graph.set_outputs([("y", value)])
    return Module("big", {"main": graph})


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_print(big):
    assert seconds(lambda: print_module(big)) < 3


def test_parse(big):
    text = print_module(big)
    assert seconds(lambda: parse_module(text)) < 20


def test_verify(big):
    assert seconds(lambda: verify(big)) < 5


def test_copy_and_compare(big):
    assert seconds(lambda: equal(big, big.copy())) < 15
