"""A saved module is an ordinary SavedModel: the same bytes each time, immune to Grappler, with its state, methods, tables and devices."""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from compiler.backend.pool import Pool
from compiler.backend.profiles import PROFILES
from compiler.backend.saved_model import Original, save
from compiler.backend.weights import place_weights
from compiler.execution import RunResult, RuntimeConfig, SavedModelArtefact
from compiler.frontend.source import load
from compiler.ir.errors import CleaveError
from compiler.ir.graph import Node, Value
from compiler.ir.module import Module
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType

pytestmark = pytest.mark.tf

TWO = RuntimeConfig(devices=2, grappler=True)

SCALES = """
  %big = Const() {value=tensor(f32[], [1e30])} : f32[]
  %small = Const() {value=tensor(f32[], [1e-30])} : f32[]
  %a = Mul(%x, %big) : f32[b] on "/device:CPU:0"
  %c = Mul(%a, %small) : f32[b] on "/device:CPU:1"
"""
OVERFLOW = f"""
module "overflow"
entry @serving_default(%x: f32[b]) -> (y = %c, inner = %d, loop = %w:1) {{
  {SCALES}
  %d = Call(%x) {{f=@inner}} : f32[b]
  %i = Const() {{value=tensor(i32[], [0])}} : i32[]
  %w = StatelessWhile(%i, %x) {{cond=@lt, body=@step}} : (i32[], f32[b])
}}
function @inner(%x: f32[b]) -> (z = %c) {{ {SCALES} }}
function @lt(%i: i32[], %x: f32[b]) -> (y = %o) {{
  %t = Const() {{value=tensor(i32[], [1])}} : i32[]
  %o = Less(%i, %t) : bool[]
}}
function @step(%i: i32[], %x: f32[b]) -> (j = %j, z = %c) {{
  %t = Const() {{value=tensor(i32[], [1])}} : i32[]
  %j = AddV2(%i, %t) : i32[]
  {SCALES}
}}
"""
X = {"x": np.array([1e20, 1.0], np.float32)}


def digests(directory: Path) -> dict[str, str]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def one(results: list[RunResult]) -> RunResult:
    (result,) = results
    assert result.error is None, result.error
    return result


@pytest.fixture(scope="module")
def overflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(parse_module(OVERFLOW), tmp_path_factory.mktemp("overflow") / "m").path


@pytest.mark.parametrize("loader", ["v2", "v1"])
@pytest.mark.parametrize("devices", [1, 2])
def test_grappler_is_kept_out_of_body_calls_and_loops(pool: Pool, overflow: Path, loader: str, devices: int) -> None:
    artefact = SavedModelArtefact(overflow, loader=loader)  # type: ignore[arg-type]
    result = one(pool.run(artefact, [X], config=replace(TWO, devices=devices)))
    for name in ("y", "inner", "loop"):
        assert result.outputs[name].tolist() == [np.inf, 1.0], name


def test_without_the_envelope_grappler_does_what_it_is_kept_from(pool: Pool, tmp_path: Path) -> None:
    save(parse_module(OVERFLOW), tmp_path / "m", profile=PROFILES["tflite"])
    result = one(pool.run(SavedModelArtefact(tmp_path / "m", loader="v1"), [X], config=TWO))
    assert result.outputs["y"].tolist() == [np.float32(1e20), 1.0]


def test_devices_survive_and_both_do_work(pool: Pool, overflow: Path) -> None:
    result = one(pool.run(SavedModelArtefact(overflow, loader="v1"), [X], config=TWO, trace=True))
    assert result.trace is not None
    nodes = {device[-5:]: {event.node for event in events} for device, events in result.trace.items()}
    assert "a" in nodes["CPU:0"]
    assert "c" in nodes["CPU:1"]


def test_the_tool_of_tensorflow_runs_it(overflow: Path) -> None:
    command = [Path(sys.executable).parent / "saved_model_cli", "run", "--dir", overflow, "--tag_set", "serve"]
    command += ["--signature_def", "serving_default", "--input_exprs", "x=[1e20,1.0]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "[inf  1.]" in done.stdout, done.stderr[-400:]


def test_it_converts_to_tflite_without_the_envelope(tmp_path: Path) -> None:
    text = 'module "m"\nentry @serving_default(%x: f32[2]) -> (y = %y) { %y = Neg(%x) : f32[2] on "/device:CPU:1" }'
    save(parse_module(text), tmp_path / "m", profile=PROFILES["tflite"])
    assert len(tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "m")).convert()) > 100


STATEFUL = """
module "state"
variable @layer/w : f32[2,3] = tensor(f32[2,3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
variable @count : i64[] = tensor(i64[], [0])
entry @serving_default(%x: f32[b,2]) -> (z = %n, a = %m, "10" = %x) {
  %h = Variable() {ref="layer/w"} : resource<f32[2,3]>[]
  %k = Variable() {ref="count"} : resource<i64[]>[]
  %one = Const() {value=tensor(i64[], [1])} : i64[]
  %add = AssignAddVariableOp(%k, %one) : ()
  %n = ReadVariableOp(%k) : i64[] after(%add)
  %w = ReadVariableOp(%h) : f32[2,3]
  %m = MatMul(%x, %w) : f32[b,3]
}
entry @weights() -> (w = %w) {
  %h = Variable() {ref="layer/w"} : resource<f32[2,3]>[]
  %w = ReadVariableOp(%h) : f32[2,3]
}
entry @train(%by: f32[]) -> () {
  %h = Variable() {ref="layer/w"} : resource<f32[2,3]>[]
  %w = ReadVariableOp(%h) : f32[2,3]
  %m = Mul(%w, %by) : f32[2,3]
  %set = AssignVariableOp(%h, %m) : ()
}
""".replace('"10" = %x', "k10 = %x")


def test_entries_share_live_state_and_two_saves_are_the_same_bytes(pool: Pool, tmp_path: Path) -> None:
    for name in ("one", "two"):
        save(parse_module(STATEFUL), tmp_path / name)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert sorted(digests(tmp_path / "one")) == [
        "fingerprint.pb", "saved_model.pb", "variables/variables.data-00000-of-00001", "variables/variables.index",
    ]  # fmt: skip
    loaded = tf.saved_model.load(str(tmp_path / "one"))
    signatures = loaded.signatures
    x = tf.constant([[1.0, 1.0]])
    first = signatures["serving_default"](x=x)
    assert {k: v.numpy().tolist() for k, v in first.items()} == {"z": 1, "a": [[5.0, 7.0, 9.0]], "k10": [[1.0, 1.0]]}
    signatures["train"](by=tf.constant(2.0))
    assert signatures["serving_default"](x=x)["a"].numpy().tolist() == [[10.0, 14.0, 18.0]]
    assert signatures["serving_default"](x=x)["z"].numpy() == 3
    assert signatures["weights"]()["w"].numpy().tolist() == [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]
    assert signatures["serving_default"].structured_input_signature[1]["x"].shape.as_list() == [None, 2]
    for loader in ("v1", "v2"):
        artefact = SavedModelArtefact(tmp_path / "one", loader=loader)  # type: ignore[arg-type]
        results = pool.run(artefact, [{"x": x.numpy()}] * 2)
        assert [int(r.outputs["z"]) for r in results] == [1, 2]


VOCABULARY = "a\nb\nc\n"


class Source(tf.Module):
    """Layers with variables of one name, a table from a file, a counter, and a method with structure."""

    def __init__(self, vocabulary: Path) -> None:
        super().__init__()
        self.layers = [tf.Module(), tf.Module()]
        self.layers[0].w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="dense/w")
        self.by_name = {"first": self.layers[0], "second": self.layers[1]}
        self.layers[1].w = tf.Variable([[5.0, 6.0], [7.0, 8.0]], name="dense/w")
        self.count = tf.Variable(0, name="count", dtype=tf.int64, trainable=False)
        self.unused = tf.Variable([1.0] * 10, name="unused")
        initializer = tf.lookup.TextFileInitializer(
            str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        self.table = tf.lookup.StaticHashTable(initializer, -1)

    @tf.function(input_signature=[{"a": tf.TensorSpec([None, 2], name="a"), "b": tf.TensorSpec([None, 2], name="b")}])
    def serve(self, inputs):  # type: ignore[no-untyped-def]
        self.count.assign_add(1)
        return {"out": (inputs["a"] @ self.layers[0].w, inputs["b"] @ self.layers[1].w)}

    @tf.function(input_signature=[{"a": tf.TensorSpec([None, 2], name="a"), "b": tf.TensorSpec([None, 2], name="b")}])
    def lookalike(self, inputs):  # type: ignore[no-untyped-def]
        return {"out": (inputs["a"] - 1.0, inputs["b"] + self.unused[0])}

    @tf.function(input_signature=[tf.TensorSpec([10])])
    def change(self, value):  # type: ignore[no-untyped-def]
        self.unused.assign(value)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="rows")])
    def first_layer(self, rows, scale=2.0):  # type: ignore[no-untyped-def]
        return [rows @ self.layers[0].w * scale]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def look(self, words):  # type: ignore[no-untyped-def]
        return self.table.lookup(words)

    @tf.function(input_signature=[])
    def get(self):  # type: ignore[no-untyped-def]
        return {"count": self.count + 0}


COMPILED = """
module "compiled"
variable @w0 : f32[2,2] = splat(f32[2,2], 0.0)
variable @layers.1.w : f32[2,2] = splat(f32[2,2], 0.0)
variable @count : i64[] = tensor(i64[], [0])
resource @table : resource[] kind "table"
entry @serving_default(%a: f32[b,2], %b: f32[b1,2]) -> (second = %m1, first = %m0) {
  %h0 = Variable() {ref="w0"} : resource<f32[2,2]>[]
  %h1 = Variable() {ref="layers.1.w"} : resource<f32[2,2]>[]
  %c = Variable() {ref="count"} : resource<i64[]>[]
  %one = Const() {value=tensor(i64[], [1])} : i64[]
  %add = AssignAddVariableOp(%c, %one) : ()
  %r0 = ReadVariableOp(%h0) : f32[2,2]
  %r1 = ReadVariableOp(%h1) : f32[2,2]
  %m0 = MatMul(%a, %r0) : f32[b,2]
  %m1 = MatMul(%b, %r1) : f32[b1,2]
}
entry @look(%words: string[b]) -> (output_0 = %f) {
  %t = Resource() {ref="table"} : resource[]
  %missing = Const() {value=tensor(i64[], [-1])} : i64[]
  %f = LookupTableFindV2(%t, %words, %missing) : i64[b]
}
"""
CHECK_RELOADED = """
import sys, tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
if len(sys.argv) > 2:
    tf.saved_model.save(model, sys.argv[2], signatures=model.signatures)
ones = {"a": tf.ones([2, 2]), "b": tf.ones([1, 2])}
for result in (model.serve(ones), model.serve(inputs=ones)):
    assert result["out"][0].numpy().tolist() == [[4, 6], [4, 6]] and result["out"][1].numpy().tolist() == [[12, 14]], result
result = model.signatures["serving_default"](**ones)
assert sorted(result) == ["first", "second"] and result["second"].numpy().tolist() == [[12, 14]], result
assert model.count.numpy() == 3 == model.get()["count"].numpy() == model.signatures["get"]()["count"].numpy()
assert model.look(tf.constant(["b", "zz"])).numpy().tolist() == [1, -1]
assert model.first_layer(tf.ones([1, 2]))[0].numpy().tolist() == [[8, 12]]
assert model.lookalike(ones)["out"][1].numpy().tolist() == [[2, 2]]
assert not hasattr(model, "change")
assert model.by_name["first"].w is model.layers[0].w
assert model.layers[1].w.numpy().tolist() == [[5, 6], [7, 8]]
"""


def test_state_tables_methods_and_kept_signatures_of_the_original(tmp_path: Path) -> None:
    """Original and vocabulary are gone when it is loaded, in a fresh interpreter; and saved once more."""
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text(VOCABULARY)
    model = Source(vocabulary)
    signature = tf.function(lambda a, b: dict(zip(("first", "second"), model.serve({"a": a, "b": b})["out"], strict=True)))
    serving = signature.get_concrete_function(tf.TensorSpec([None, 2], name="a"), tf.TensorSpec([None, 2], name="b"))
    source = tmp_path / "source"
    tf.saved_model.save(model, str(source), signatures={"serving_default": serving, "look": model.look, "get": model.get})
    original = Original(source, keep=("get",), names={"w0": "by_name/first/w/.ATTRIBUTES/VARIABLE_VALUE"})
    saved = save(parse_module(COMPILED), tmp_path / "out", original=original)
    again = save(parse_module(COMPILED), tmp_path / "again", original=original)
    assert (saved.methods, saved.untouched, saved.dropped) == (("get", "look", "serve"), ("first_layer", "lookalike"), ("change",))
    assert digests(saved.path) == digests(again.path)
    stored = dict(tf.train.list_variables(str(saved.path / "variables" / "variables")))
    assert sorted(key.partition("/.")[0] for key in stored) == [
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        "count",
        "layers/0/w",
        "layers/1/w",
        "unused",
    ]
    restored = tf.train.Checkpoint(model)
    model.layers[0].w.assign(tf.zeros([2, 2]))
    restored.read(str(saved.path / "variables" / "variables")).expect_partial()
    assert model.layers[0].w.numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    shutil.rmtree(source)
    vocabulary.unlink()
    for arguments in ([saved.path, tmp_path / "resaved"], [tmp_path / "resaved"]):
        done = subprocess.run([sys.executable, "-c", CHECK_RELOADED, *arguments], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-800:]


def test_a_table_the_original_has_not_is_named(tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path / "source"))
    with pytest.raises(CleaveError, match="has no table or asset 'table'"):
        save(parse_module(COMPILED), tmp_path / "out", original=Original(tmp_path / "source"))
    assert not (tmp_path / "out").exists()


def big_weights() -> Module:
    module = parse_module('module "big"\nentry @serving_default(%x: f32[256]) -> (y = %y) { %y = Neg(%x) : f32[256] }')
    graph = module.entries["serving_default"]
    type_ = TensorType(DType("float32"), (256,))
    last = Value("y")
    for index, device in enumerate(["/device:CPU:0", "/device:CPU:1", "/device:CPU:1"]):
        literal = module.stores.constant(np.arange(256, dtype=np.float32) + min(index, 1))
        graph.add_node(Node(f"w{index}", "Const", {"value": literal}, (type_,), device))
        graph.add_node(Node(f"s{index}", "AddV2", {}, (type_,), device), [last, Value(f"w{index}")])
        last = Value(f"s{index}")
    graph.set_outputs([("y", last)])
    return module


def test_weights_beyond_the_limit_become_variables_on_their_devices(pool: Pool, tmp_path: Path) -> None:
    module = big_weights()
    assert place_weights(module) is module
    placed = place_weights(module, 100)
    assert {(v.name, v.device) for v in placed.variables.values()} == {("weight/w0", "/device:CPU:0"), ("weight/w1", "/device:CPU:1")}
    assert [placed.entries["serving_default"].node(f"w{i}").op for i in range(3)] == ["ReadVariableOp"] * 3
    assert not module.variables
    saved = save(module, tmp_path / "m", weight_bytes=100)
    x = np.ones(256, np.float32)
    expected = -x + 3 * np.arange(256, dtype=np.float32) + 2
    artefact = SavedModelArtefact(saved.path, variable_devices=True)
    np.testing.assert_array_equal(one(pool.run(artefact, [{"x": x}], config=TWO)).outputs["y"], expected)
    proto = saved_model_pb2.SavedModel.FromString((saved.path / "saved_model.pb").read_bytes())
    devices = [node.variable.device for node in proto.meta_graphs[0].object_graph_def.nodes if node.HasField("variable")]
    assert sorted(device[-5:] for device in devices) == ["CPU:0", "CPU:1"]
    assert not any("task" in node.device for f in proto.meta_graphs[0].graph_def.library.function for node in f.node_def)


def test_a_directory_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    module = parse_module('module "m"\nentry @serving_default(%x: f32[2]) -> (y = %y) { %y = Neg(%x) : f32[2] }')
    notes = tmp_path / "out" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("keep")
    for overwrite in (False, True):
        with pytest.raises(CleaveError, match=r"not empty|only a SavedModel is overwritten"):
            save(module, tmp_path / "out", overwrite=overwrite)
    assert notes.read_text() == "keep"
    notes.unlink()
    save(module, tmp_path / "out")
    with pytest.raises(CleaveError, match="allow to overwrite"):
        save(module, tmp_path / "out")
    before = digests(tmp_path / "out")
    save(module, tmp_path / "out", overwrite=True)
    assert digests(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


V1_TEXT = """
module "v1"
variable @w : f32[2] = tensor(f32[2], [0.0, 0.0])
resource @hash_table : resource[] kind "table"
entry @serving_default(%words: string[b]) -> (ids = %f, weights = %g) {
  %t = Resource() {ref="hash_table"} : resource[]
  %missing = Const() {value=tensor(i64[], [-1])} : i64[]
  %f = LookupTableFindV2(%t, %words, %missing) : i64[b]
  %h = Variable() {ref="w"} : resource<f32[2]>[]
  %r = ReadVariableOp(%h) : f32[2]
  %two = Const() {value=tensor(f32[], [2.0])} : f32[]
  %g = Mul(%r, %two) : f32[2]
}
"""
CHECK_V1 = """
import sys, tensorflow as tf
words = tf.constant(["b", "zz"])
result = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](words=words)
assert result["ids"].numpy().tolist() == [1, -1] and result["weights"].numpy().tolist() == [6, 8], result
v1 = tf.compat.v1
with v1.Session(graph=tf.Graph()) as session:
    signature = v1.saved_model.loader.load(session, ["serve"], sys.argv[1]).signature_def["serving_default"]
    fetched = session.run(signature.outputs["ids"].name, {signature.inputs["words"].name: [b"b", b"zz"]})
    assert fetched.tolist() == [1, -1], fetched
"""


def v1_model(directory: Path, vocabulary: Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        words = v1.placeholder(tf.string, [None], name="words")
        initializer = tf.lookup.TextFileInitializer(
            str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        ids = tf.lookup.StaticHashTable(initializer, -1).lookup(words)
        w = v1.get_variable("w", initializer=[3.0, 4.0], use_resource=True)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        v1.saved_model.simple_save(session, str(directory), {"words": words}, {"ids": ids, "weights": w * 2.0}, v1.tables_initializer())


@pytest.mark.parametrize("inline", [False, True])
def test_a_v1_model_brings_its_tables_assets_and_initializer(tmp_path: Path, inline: bool) -> None:
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text(VOCABULARY)
    v1_model(tmp_path / "source", vocabulary)
    text = V1_TEXT
    if inline:
        node = f'HashTableV2() {{key_dtype=string, value_dtype=i64, shared_name="hash_table_{vocabulary}_-2_-1"}}'
        text = text.replace('Resource() {ref="hash_table"}', node)
    for name in ("out", "again"):
        save(parse_module(text), tmp_path / name, original=Original(tmp_path / "source"))
    assert digests(tmp_path / "out") == digests(tmp_path / "again")
    shutil.rmtree(tmp_path / "source")
    vocabulary.unlink()
    done = subprocess.run([sys.executable, "-c", CHECK_V1, tmp_path / "out"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-800:]


def test_what_was_saved_can_be_read_and_saved_again(tmp_path: Path) -> None:
    """The second generation's tables are made and filled by functions of the first, under names that loading changes."""
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text(VOCABULARY)
    v1_model(tmp_path / "0", vocabulary)
    for generation in range(3):
        source = load(tmp_path / str(generation))
        original = Original(source.path, source.tags, names=source.locations)
        save(source.module, tmp_path / str(generation + 1), original=original)
        shutil.rmtree(tmp_path / str(generation))
    done = subprocess.run([sys.executable, "-c", CHECK_V1, tmp_path / "3"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-800:]
