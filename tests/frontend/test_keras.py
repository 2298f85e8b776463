"""Keras models in memory and in files, of both major versions: exported, structured as they are, and no file's Python is run."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.ir.text import equal, parse_module, print_module
from compiler.ir.verify import verify

pytestmark = pytest.mark.tf


def read(model: Any) -> SourceModel:
    source = load(model)
    verify(source.module)
    assert equal(parse_module(print_module(source.module)), source.module)
    return source


def keys(source: SourceModel) -> tuple[list[str], list[str]]:
    info = source.signatures["serving_default"]
    return list(info.inputs), list(info.outputs)


def network() -> keras.Model:
    keras.utils.set_random_seed(3)
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((8, 8, 1), name="image"), layers.Conv2D(3, 3), layers.BatchNormalization(), layers.Flatten(), layers.Dense(2)]
    )


def two_inputs() -> tuple[Any, Any, Any, Any]:
    a, b = keras.Input((3,), name="a"), keras.Input((None, 3), name="b")
    return a, b, keras.layers.Dense(2)(a), keras.layers.GlobalAveragePooling1D()(b)


def test_a_network_has_its_weights_by_reference_and_its_batch_open() -> None:
    model = network()
    source = read(model)
    assert str(source.signatures["serving_default"].inputs["image"]) == "f32[b,8,8,1]"
    assert set(source.module.entries) == {"serve", "serving_default"}
    stored = {tuple(v.type.shape or ()): source.module.stores.load(v.initial) for v in source.module.variables.values() if v.initial}
    for weight in model.weights:
        assert any(
            np.array_equal(np.asarray(weight), array) for array in stored.values() if array.shape == weight.shape
        ) or weight.shape == (3,)
    assert len(source.module.variables) == len(model.weights)
    assert [v.trainable for v in source.module.variables.values()].count(False) == 2
    assert {s.name for s in source.module.stores.files.values()} == {"variables.data-00000-of-00001"}
    assert source.label == f"Keras model {model.name!r}"


def test_the_exported_copy_lives_as_long_as_the_source() -> None:
    source = read(network())
    directory = source.path
    assert directory.is_dir()
    del source
    assert not directory.exists()


def test_arguments_and_results_are_the_models() -> None:
    a, b, p, q = two_inputs()
    listed = read(keras.Model([b, a], [p, q]))
    assert keys(listed) == (["a", "b"], ["output_0", "output_1"])
    assert (listed.arguments, listed.results) == (("b", "a"), ["output_0", "output_1"])
    named = read(keras.Model({"b": b, "a": a}, {"second": p, "first": q}))
    assert keys(named) == (["a", "b"], ["first", "second"])
    assert named.results is None
    nested = read(keras.Model([b, a], [p, {"k": q, "l": [keras.layers.Dense(1)(a)]}]))
    assert keys(nested) == (["a", "b"], ["output_0", "output_1_k", "output_1_l_0"])
    assert (nested.arguments, nested.results) == (("b", "a"), ["output_0", {"k": "output_1_k", "l": ["output_1_l_0"]}])


class Two(keras.Model):
    """A subclassed model whose results nobody declares."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.dense(x), x


def test_a_subclassed_model_must_be_built_and_then_shows_its_results() -> None:
    model = Two()
    with pytest.raises(CleaveError, match="is not built, expected one that has been called"):
        load(model)
    model(np.ones((2, 3), np.float32))
    assert read(model).results == ("output_0", "output_1")


class Counting(keras.layers.Layer):
    """Adds how often it ran."""

    def build(self, shape: Any) -> None:
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.count.assign_add(1.0)
        return x + self.count


def test_layers_that_write_keep_writing() -> None:
    module = read(keras.Sequential([keras.Input((3,)), Counting()])).module
    assert any(node.op == "AssignVariableOp" for graph in module.functions.values() for node in graph)


def test_text_layers_bring_their_tables() -> None:
    vectors = keras.layers.TextVectorization(max_tokens=9, output_sequence_length=4)
    vectors.adapt(["a b c", "b c d"])
    text = keras.Input((1,), dtype="string")
    source = read(keras.Model(text, keras.layers.Embedding(9, 3)(vectors(text))))
    assert [r.kind for r in source.module.resources.values()] == ["table"]


def test_a_model_built_for_several_replicas_is_one_model() -> None:
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    assert len(read(model).module.variables) == 2


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_file_reads_like_the_model(tmp_path: Path, suffix: str) -> None:
    model = network()
    model.compile("adam", "mse")
    model.fit(np.ones((4, 8, 8, 1)), np.ones((4, 2)), verbose=0)
    model.save(tmp_path / f"m.{suffix}")
    source, memory = read(tmp_path / f"m.{suffix}"), read(model)
    assert (keys(source), source.label) == (keys(memory), str(tmp_path / f"m.{suffix}"))
    assert [n.op for n in source.module.functions["__call__"]] == [n.op for n in memory.module.functions["__call__"]]


@pytest.mark.parametrize("suffix", ["memory", "keras", "h5"])
def test_keras_2_is_read_too(tmp_path: Path, suffix: str) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    layers = tf_keras.layers
    model = tf_keras.Sequential(
        [tf_keras.Input((4, 4, 1), name="image"), layers.Conv2D(2, 3), layers.BatchNormalization(), layers.Flatten()]
    )
    if suffix != "memory":
        model.save(tmp_path / f"m.{suffix}")
    module = read(model if suffix == "memory" else tmp_path / f"m.{suffix}").module
    assert module.entries["serving_default"].inputs == ("image",)
    assert len(module.variables) == 6


LOADER = """
import sys
from compiler.frontend.source import load
source = load(sys.argv[1])
print([(name, place) for name, place in sorted(source.locations.items())])
"""


def test_two_processes_find_the_variables_in_the_same_places(tmp_path: Path) -> None:
    network().save(tmp_path / "m.keras")
    command = [sys.executable, "-c", LOADER, str(tmp_path / "m.keras")]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout for _ in range(2)]
    assert runs[0] == runs[1]
    assert "kernel" in runs[0]


def lambda_model() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda t: t * 2)])


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_python_in_a_file_is_not_run(tmp_path: Path, suffix: str) -> None:
    lambda_model().save(tmp_path / f"m.{suffix}")
    with pytest.raises(CleaveError, match="'Lambda', which runs Python"):
        load(tmp_path / f"m.{suffix}")
    assert read(lambda_model()).module.entries  # but in memory it is the user's own


@pytest.mark.parametrize(
    ("suffix", "named"), [("keras", "test_keras', which runs Python"), ("h5", "'Counting'; files with classes of your own")]
)
def test_classes_of_ones_own_are_named(tmp_path: Path, suffix: str, named: str) -> None:
    keras.Sequential([keras.Input((3,)), Counting()]).save(tmp_path / f"m.{suffix}")
    with pytest.raises(CleaveError, match=rf"{named}.* pass the model itself or export a SavedModel"):
        load(tmp_path / f"m.{suffix}")


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.keras", "w") as archive:
        archive.writestr("../outside", "x")
    with pytest.raises(CleaveError, match=r"member '../outside' that points outside"):
        load(tmp_path / "evil.keras")
    for name, message in (("bad.keras", "is not a .keras archive"), ("bad.h5", "is not an HDF5 file")):
        (tmp_path / name).write_bytes(b"PK12")
        with pytest.raises(CleaveError, match=message):
            load(tmp_path / name)
    with pytest.raises(CleaveError, match="is not built"):
        load(keras.Sequential([keras.layers.Dense(2)]))


def test_state_lies_where_the_functions_are_bound_not_in_its_twin() -> None:
    """Keras exports a variable several times over; only one of the copies is what a call changes."""
    images = keras.Input((4, 4, 3), name="images")
    source = read(keras.Model(images, keras.layers.RandomFlip(seed=3)(images)))
    (place,) = source.locations.values()
    loaded = tf.saved_model.load(str(source.path))
    item = loaded
    for part in place.split("."):
        item = tf.train.TrackableView.children(item)[part]
    before = item.numpy().tolist()
    loaded.signatures["serve"](images=tf.zeros([1, 4, 4, 3]))
    assert item.numpy().tolist() != before


@pytest.mark.parametrize("nested", ["list", "tuple", "dict", "one"])
def test_a_functional_model_of_keras_2_returns_what_it_returned(nested: str) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    x = tf_keras.Input((3,), name="x")
    a, b = tf_keras.layers.Dense(2, name="first")(x), tf_keras.layers.Dense(1, name="second")(x)
    outputs, results = {
        "list": ([a, b], ["first", "second"]),
        "tuple": ((b, a), ("second", "first")),
        "dict": ({"u": a, "v": b}, {"u": "u", "v": "v"}),
        "one": (a, "first"),
    }[nested]
    assert read(tf_keras.Model(x, outputs)).results == results
