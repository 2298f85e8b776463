"""Objects with methods: a tf.Module, a loaded model, a SavedModel without signatures."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from compiler.backend.saved_model import Original, save
from compiler.frontend.source import load
from compiler.ir.errors import CleaveError

pytestmark = pytest.mark.tf

ROWS = tf.TensorSpec([None, 3], tf.float32)


class Codec(tf.Module):
    """A method by itself, one with two traces, one that writes, one never traced."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        self.calls = tf.Variable(0)

    @tf.function(input_signature=[ROWS])
    def __call__(self, x: Any) -> Any:
        return {"code": [x @ self.weight]}

    @tf.function
    def scaled(self, x: Any, training: bool = True) -> Any:
        return x * (2.0 if training else 1.0)

    @tf.function(input_signature=[])
    def count(self) -> Any:
        return self.calls.assign_add(1)

    @tf.function
    def untraced(self, x: Any) -> Any:
        return x


def codec() -> Codec:
    made = Codec()
    made.scaled.get_concrete_function(ROWS, training=True)
    made.scaled.get_concrete_function(ROWS, training=False)
    return made


EXPECTED = {
    "count": ([], ["output_0"]),
    "scaled": (["x"], ["output_0"]),
    "scaled_1": (["x"], ["output_0"]),
    "serving_default": (["x"], ["code_0"]),
}


def test_each_trace_of_a_method_is_a_signature_in_memory_and_on_disk(tmp_path: Path) -> None:
    model = codec()
    tf.saved_model.save(model, str(tmp_path / "model"), signatures={})
    for source in (load(model), load(tf.saved_model.load(str(tmp_path / "model"))), load(tmp_path / "model")):
        assert {k: (list(s.inputs), list(s.outputs)) for k, s in source.signatures.items()} == EXPECTED
        assert [v.type.shape for v in source.module.variables.values()] == [(), (3, 2)] or len(source.module.variables) == 2
        two = [n for n in source.module.functions.values() for n in n if n.op == "Mul"]
        assert two, "the trace with training=True is there too"


def test_what_is_saved_is_called_like_the_original(tmp_path: Path) -> None:
    tf.saved_model.save(codec(), str(tmp_path / "model"), signatures={})
    source = load(tmp_path / "model")
    saved = save(source.module, tmp_path / "out", original=Original(source.path, source.tags, (), source.locations))
    assert set(saved.methods) == {"__call__", "scaled", "count"}
    loaded = tf.saved_model.load(str(tmp_path / "out"))
    assert loaded(tf.ones([1, 3]))["code"][0].numpy().tolist() == [[9.0, 12.0]]
    assert loaded.scaled(tf.ones([1, 3]), training=False).numpy().tolist() == [[1.0, 1.0, 1.0]]
    assert loaded.scaled(tf.ones([1, 3])).numpy().tolist() == [[2.0, 2.0, 2.0]]
    assert [int(loaded.count()), int(loaded.signatures["count"]()["output_0"])] == [1, 2]


def test_one_method_alone_returns_what_it_returns() -> None:
    class One(tf.Module):
        @tf.function(input_signature=[ROWS, ROWS])
        def __call__(self, b: Any, a: Any) -> Any:
            return a, (b,)

    source = load(One())
    assert source.arguments == ("b", "a")
    assert source.results == ("output_0", ("output_1_0",))


def test_what_has_no_method_to_compile_is_said(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match=r"object of class 'Module' has no method to compile: it has no tf.function"):
        load(tf.Module())
    ragged = tf.Module()
    ragged.total = tf.function(lambda r: tf.reduce_sum(r, 1), input_signature=[tf.RaggedTensorSpec([None, None])])
    tf.saved_model.save(ragged, str(tmp_path / "model"), signatures={})
    with pytest.raises(CleaveError, match=r"model has no method to compile: total has no trace of dense tensors"):
        load(tmp_path / "model")
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    with pytest.raises(CleaveError, match="has no signatures and no traced method"):
        load(tmp_path / "empty")
