"""SavedModels of both versions: every signature with its state, what others do to it, and whatever is wrong with them in one line."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.trackable.resource import CapturableResource

from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.ir.text import equal, parse_module, print_module
from compiler.ir.verify import verify

pytestmark = pytest.mark.tf

v1 = tf.compat.v1


def read(path: Path, **options: Any) -> SourceModel:
    source = load(path, **options)
    verify(source.module)
    assert equal(parse_module(print_module(source.module)), source.module)
    return source


def value(source: SourceModel, variable: str) -> list[Any]:
    initial = source.module.variables[variable].initial
    assert initial is not None
    found: list[Any] = np.asarray(source.module.stores.load(initial)).tolist()
    return found


class Counter(tf.Module):
    """Reads, a write that returns nothing, two variables of one name, one of which is written."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable([1.0, 2.0], name="v")
        self.count = tf.Variable(5, name="v", trainable=False)
        self.constant = tf.constant([[3.0, 4.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x * self.scale + self.constant}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def train(self, rate: tf.Tensor) -> dict[str, tf.Tensor]:
        self.scale.assign_add([rate, rate])
        return {}

    @tf.function(input_signature=[])
    def weights(self) -> dict[str, tf.Tensor]:
        return {"w": self.scale.read_value(), "n": self.count.read_value()}


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, path = Counter(), tmp_path_factory.mktemp("counter") / "m"
    signatures = {"serving_default": model.serve, "train": model.train, "weights": model.weights}
    tf.saved_model.save(model, str(path), signatures=signatures)
    return path


def test_every_signature_is_an_entry_and_state_is_shared_by_what_it_is_not_by_its_name(counter: Path) -> None:
    source = read(counter)
    module = source.module
    assert {k: (g.inputs, tuple(o.name for o in g.outputs)) for k, g in module.entries.items()} == {
        "serving_default": (("x",), ("y",)), "train": (("rate",), ()), "weights": ((), ("n", "w")),
    }  # fmt: skip
    scale, count = (next(k for k, p in source.locations.items() if p.startswith(name)) for name in ("scale", "count"))
    assert (value(source, scale), value(source, count)) == ([1.0, 2.0], 5)
    assert (module.variables[scale].trainable, module.variables[count].trainable) == (True, False)
    for entry in ("serving_default", "train", "weights"):
        assert scale in {n.attrs.get("ref") for n in module.entries[entry] if n.op == "Variable"}
    assert source.kind == "saved_model" and source.tags == ("serve",) and source.kept == ()
    assert str(source.signatures["serving_default"].inputs["x"]) == "f32[b,2]"
    assert source.signatures["train"].method_name == "tensorflow/serving/predict"


def test_a_signature_that_returns_nothing_still_runs(counter: Path) -> None:
    module = read(counter, signature="train").module
    (call,) = [node for node in module.entries["train"] if node.op == "Call"]
    assert call.types == ()
    assert any(node.op == "AssignAddVariableOp" for graph in module.functions.values() for node in graph)


def test_signatures_that_stay_are_seen_to_write(counter: Path) -> None:
    source = read(counter, signature="serving_default")
    (variable,) = source.module.variables.values()
    assert source.kept == ("train", "weights")
    assert (variable.written_elsewhere, variable.read_elsewhere) == (True, True)
    (variable,) = read(counter, signature="train").module.variables.values()
    assert variable.written_elsewhere is False


def test_twelve_results_are_mapped_by_key(tmp_path: Path) -> None:
    module = tf.Module()
    module.f = tf.function(lambda x: [x + float(i) for i in range(12)], input_signature=[tf.TensorSpec([])])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=module.f)
    graph = read(tmp_path / "m").module.entries["serving_default"]
    call = next(node for node in graph if node.op == "Call")
    (signature,) = tf.saved_model.load(str(tmp_path / "m")).signatures.values()
    assert {o.name for o in graph.outputs} == set(signature.structured_outputs)
    order = sorted(f"output_{i}" for i in range(12))
    assert [(o.name, o.value.port) for o in graph.outputs if o.value.node == call.name] == [(name, i) for i, name in enumerate(order)]


def test_a_signature_of_composite_values_is_left_as_it_is(tmp_path: Path) -> None:
    module = tf.Module()
    module.ragged = tf.function(lambda x: {"o": x * 2.0}, input_signature=[tf.RaggedTensorSpec([None, None])])
    module.dense = tf.function(lambda x: {"o": x * 2.0}, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"ragged": module.ragged, "dense": module.dense})
    source = read(tmp_path / "m")
    assert (list(source.module.entries), source.kept) == (["dense"], ("ragged",))
    with pytest.raises(CleaveError, match="signature 'ragged': 'o' is a composite_tensor value"):
        load(tmp_path / "m", signature="ragged")


def vocabulary(folder: Path) -> Path:
    (folder / "vocabulary.txt").write_text("a\nb\n")
    return folder / "vocabulary.txt"


def table(path: Path) -> Any:
    lines = tf.lookup.TextFileIndex
    initializer = tf.lookup.TextFileInitializer(str(path), tf.string, lines.WHOLE_LINE, tf.int64, lines.LINE_NUMBER)
    return tf.lookup.StaticVocabularyTable(initializer, 1)


def test_a_table_filled_from_an_asset_is_a_resource(tmp_path: Path) -> None:
    module = tf.Module()
    module.words = table(vocabulary(tmp_path))
    module.f = tf.function(lambda s: module.words.lookup(s), input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=module.f)
    source = read(tmp_path / "m")
    ((name, resource),) = source.module.resources.items()
    assert (resource.kind, source.locations) == ("table", {name: "words"})
    assert [n.attrs["ref"] for n in source.module.entries["serving_default"] if n.op == "Resource"] == [name]


class Spy(CapturableResource):
    """A resource whose setup writes a file."""

    def _create_resource(self) -> tf.Tensor:
        return tf.raw_ops.MutableDenseHashTableV2(empty_key=0, deleted_key=-1, value_dtype=tf.int64)

    def _initialize(self) -> int:
        tf.io.write_file("/nonexistent/file", "x")
        return 1


def test_loading_would_run_setup_so_setup_is_looked_at(tmp_path: Path) -> None:
    module = tf.Module()
    module.spy, module.v = Spy(), tf.Variable(1.0)
    module.f = tf.function(lambda x: x * module.v, input_signature=[tf.TensorSpec([])])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=module.f)
    with pytest.raises(CleaveError, match="WriteFile 'WriteFile' touches files, the network or Python, and loading the model runs it"):
        load(tmp_path / "m")
    assert list(read(tmp_path / "m", allow_files=True).module.entries) == ["serving_default"]


def test_a_table_filled_from_a_file_that_is_no_asset_is_refused(tmp_path: Path) -> None:
    path = vocabulary(tmp_path)

    def build() -> dict[str, Any]:
        words = v1.placeholder(tf.string, [None], name="words")
        return {"serving_default": signature({"words": words}, {"ids": table(path).lookup(words)})}

    save_v1(tmp_path / "without", build)
    with pytest.raises(CleaveError, match=r"InitializeTableFromTextFileV2 .* loading the model runs it"):
        load(tmp_path / "without")
    save_v1(tmp_path / "with", build, assets=True)
    assert list(read(tmp_path / "with").module.resources) == ["hash_table"]


# ------------------------------------------------------------------------------------------------------------------- version 1


def signature(inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    info = v1.saved_model.build_tensor_info
    return v1.saved_model.build_signature_def({k: info(t) for k, t in inputs.items()}, {k: info(t) for k, t in outputs.items()}, "m")


def save_v1(path: Path, build: Callable[[], dict[str, Any]], assets: bool = False) -> Path:
    with tf.Graph().as_default(), v1.Session() as session:
        signatures = build()
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(str(path))
        collection = v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS) if assets else None
        builder.add_meta_graph_and_variables(session, ["serve"], signatures, assets_collection=collection, main_op=v1.tables_initializer())
        builder.save()
    return path


def variable(name: str, *, resource: bool, **options: Any) -> Any:
    return v1.get_variable(name, initializer=options.pop("initializer", [1.0, 2.0]), use_resource=resource, **options)


def test_reference_variables_that_are_only_read_are_read_like_any(tmp_path: Path) -> None:
    def build() -> dict[str, Any]:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        y = tf.identity(x * variable("old", resource=False) + variable("new", resource=True), name="y")
        return {
            "whole": signature({"x": x}, {"y": y}),
            "tail": signature({"middle": y}, {"z": y * 2.0}),
            "none": signature({"x": x}, {"same": x}),
        }

    source = read(save_v1(tmp_path / "m", build))
    whole = source.module.entries["whole"]
    assert source.kind == "saved_model_v1"
    assert {n.attrs["ref"] for n in whole if n.op == "Variable"} == {"old", "new"} == set(source.locations)
    assert [str(n.type) for n in whole if n.op == "ReadVariableOp" and n.name == "old/value"] == ["f32[2]"]
    assert value(source, "old") == [1.0, 2.0]
    assert "x" not in source.module.entries["tail"] and source.module.entries["tail"].inputs == ("middle",)
    assert [str(o.value) for o in source.module.entries["none"].outputs] == ["%x"]


def test_a_write_to_a_reference_variable_is_refused(tmp_path: Path) -> None:
    def build() -> dict[str, Any]:
        x = v1.placeholder(tf.float32, [2], name="x")
        return {"serving_default": signature({"x": x}, {"y": v1.assign_add(variable("w", resource=False), x)})}

    with pytest.raises(CleaveError, match="AssignAdd 'AssignAdd' writes 'w', a reference variable"):
        load(save_v1(tmp_path / "m", build))


def test_parts_of_a_partitioned_variable_are_parts_of_one_stored_tensor(tmp_path: Path) -> None:
    def build() -> dict[str, Any]:
        x = v1.placeholder(tf.float32, [None, 5], name="x")
        options = {"partitioner": v1.fixed_size_partitioner(2), "initializer": tf.constant(np.arange(10.0, dtype=np.float32).reshape(5, 2))}
        with v1.variable_scope("s", use_resource=True):
            w = v1.get_variable("w", **options)
        return {"serving_default": signature({"x": x}, {"y": x @ tf.convert_to_tensor(w)})}

    source = read(save_v1(tmp_path / "m", build))
    assert {name: value(source, name) for name in source.module.variables} == {
        "s/w/part_0": [[0, 1], [2, 3], [4, 5]], "s/w/part_1": [[6, 7], [8, 9]],
    }  # fmt: skip


def test_a_sparse_input_is_its_three_tensors_named_as_when_loaded(tmp_path: Path) -> None:
    def build() -> dict[str, Any]:
        x = v1.sparse_placeholder(tf.float32, [None, 3], name="x")
        return {"serving_default": signature({"x": x}, {"y": v1.sparse_reduce_sum(x)})}

    source = read(save_v1(tmp_path / "m", build))
    types = {name: str(type_) for name, type_ in source.signatures["serving_default"].inputs.items()}
    assert types == {"x_dense_shape": "i64[2]", "x_indices": "i64[b,2]", "x_values": "f32[b1]"}
    loaded = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    assert set(loaded.structured_input_signature[1]) == set(types)


def test_a_placeholder_that_is_no_input_is_refused_but_one_with_a_default_is_not(tmp_path: Path) -> None:
    def build() -> dict[str, Any]:
        x, z = (v1.placeholder(tf.float32, [], name=name) for name in "xz")
        d = v1.placeholder_with_default(tf.constant(2.0), [], name="d")
        return {"good": signature({"x": x}, {"y": x * d}), "bad": signature({"x": x}, {"y": x * z})}

    with pytest.raises(CleaveError, match=r"signature 'bad': placeholder 'z' is needed but is not among the inputs \(x\)"):
        load(save_v1(tmp_path / "m", build))


# ---------------------------------------------------------------------------------------------------------------------- faults


def broken(source: Path, target: Path, change: Callable[[Path], object]) -> Path:
    shutil.copytree(source, target)
    change(target)
    return target


def cut(file: str, keep: int) -> Callable[[Path], object]:
    return lambda path: (path / file).write_bytes((path / file).read_bytes()[:keep])


def change_proto(change: Callable[[saved_model_pb2.SavedModel], object]) -> Callable[[Path], object]:
    def apply(path: Path) -> None:
        saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        change(saved)
        (path / "saved_model.pb").write_bytes(saved.SerializeToString())

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut("saved_model.pb", -100), "saved_model.pb cannot be read"),
        (cut("saved_model.pb", 0), "holds no graph; is it truncated"),
        (cut("variables/variables.data-00000-of-00001", 3), "variables.data-00000-of-00001"),
        (cut("variables/variables.index", 20), "variables.index"),
        (lambda path: shutil.rmtree(path / "variables"), "variables.index: No such file"),
        (lambda path: os.remove(path / "saved_model.pb"), "is not a SavedModel: it has no saved_model.pb"),
        (
            change_proto(lambda s: (s.meta_graphs[0].signature_def.clear(), s.meta_graphs[0].object_graph_def.Clear())),
            "has no signatures and no traced method",
        ),
        (change_proto(lambda s: s.meta_graphs[0].graph_def.library.ClearField("function")), "is not in the model's library"),
        (change_proto(lambda s: s.meta_graphs[0].graph_def.ClearField("node")), "the graph has no node"),
    ],
)
def test_what_is_broken_is_named_in_one_line(counter: Path, tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    with pytest.raises(CleaveError, match=message) as caught:
        load(broken(counter, tmp_path / "m", change))
    assert "\n" not in str(caught.value)


def test_what_is_not_there_is_answered_with_what_is(counter: Path) -> None:
    with pytest.raises(CleaveError, match=r"no signature 'predict', expected one of \['serving_default', 'train', 'weights'\]"):
        load(counter, signature="predict")
    with pytest.raises(CleaveError, match=r"no graph with tags \['gpu', 'serve'\], expected one of \[\['serve'\]\]"):
        load(counter, tags=("serve", "gpu"))
    with pytest.raises(CleaveError, match="no such file or directory"):
        load(counter / "missing")
    with pytest.raises(CleaveError, match="is part of a SavedModel, expected its directory"):
        load(counter / "saved_model.pb")
    with pytest.raises(CleaveError, match="a float is no model"):
        load(1.5)


def test_the_graph_of_the_asked_tags_is_read(counter: Path, tmp_path: Path) -> None:
    def two(saved: saved_model_pb2.SavedModel) -> None:
        other = saved.meta_graphs.add()
        other.CopyFrom(saved.meta_graphs[0])
        other.meta_info_def.tags[:] = ["serve", "gpu"]
        del other.signature_def["train"]

    path = broken(counter, tmp_path / "m", change_proto(two))
    assert list(load(path).module.entries) == ["serving_default", "train", "weights"]
    tagged = load(path, tags=("gpu", "serve"))
    assert list(tagged.module.entries) == ["serving_default", "weights"]
    assert tagged.artefact_of("weights").tags == ("serve", "gpu")  # type: ignore[union-attr]


def test_an_attribute_of_a_later_version_may_be_left_out_at_its_default_only(counter: Path, tmp_path: Path) -> None:
    def later(speed: int) -> Callable[[saved_model_pb2.SavedModel], None]:
        def change(saved: saved_model_pb2.SavedModel) -> None:
            meta = saved.meta_graphs[0]
            attr = next(op for op in meta.meta_info_def.stripped_op_list.op if op.name == "Mul").attr.add(name="speed", type="int")
            attr.default_value.i = 3
            for function in meta.graph_def.library.function:
                for node in function.node_def:
                    if node.op == "Mul":
                        node.attr["speed"].i = speed

        return change

    assert load(broken(counter, tmp_path / "same", change_proto(later(3)))).module.entries
    with pytest.raises(CleaveError, match="no attribute 'speed' of Mul"):
        load(broken(counter, tmp_path / "other", change_proto(later(4))))
