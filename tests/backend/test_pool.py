"""Children run what they are sent, keep state where they should, and die without taking anything along."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from compiler.backend.pool import Pool
from compiler.execution import GraphDefArtefact, RunResult, RuntimeConfig, SavedModelArtefact

pytestmark = pytest.mark.tf

TWO = RuntimeConfig(devices=2, intra_threads=1, inter_threads=2)
X = np.array([[1.0, 2.0]], np.float32)


class Counter(tf.Module):
    """y = x @ w, and how often that was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([[2.0], [3.0]], name="w")
        self.calls = tf.Variable(0, name="calls", dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def serve(self, x):  # type: ignore[no-untyped-def]
        self.calls.assign_add(1)
        return {"y": tf.matmul(x, self.w), "calls": self.calls.read_value()}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([2], tf.float32)])
    def pair(self, left, right):  # type: ignore[no-untyped-def]
        return left - right, [left]

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.float32, ragged_rank=1)])
    def ragged(self, values):  # type: ignore[no-untyped-def]
        return {"sum": tf.reduce_sum(values, 1), "twice": values * 2.0}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def upper(self, text):  # type: ignore[no-untyped-def]
        return {"upper": tf.strings.upper(text)}

    @tf.function(input_signature=[tf.TensorSpec([2], tf.bfloat16, name="h")])
    def half(self, h):  # type: ignore[no-untyped-def]
        return {"half": h * tf.constant(0.5, tf.bfloat16)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
    def forever(self, x):  # type: ignore[no-untyped-def]
        return {"y": tf.while_loop(lambda v: v < 1.0, lambda v: [v * 0.5], [x])[0]}

    @tf.function(input_signature=[tf.TensorSpec([2, 2], tf.float32, name="x")])
    def inverse(self, x):  # type: ignore[no-untyped-def]
        return {"y": tf.linalg.inv(x)}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def split(self, x):  # type: ignore[no-untyped-def]
        with tf.device("/device:CPU:0"):
            left = tf.matmul(x, self.w, name="left")
        with tf.device("/device:CPU:1"):
            right = tf.matmul(x + 1.0, self.w, name="right")
        return {"y": left + right}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("counter")
    module = Counter()
    names = ["upper", "half", "forever", "inverse", "split"]
    signatures = {name: getattr(module, name) for name in names} | {"serving_default": module.serve}
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as pool:
        yield pool


def only(results: list[RunResult]) -> RunResult:
    (result,) = results
    assert result.error is None, f"{result.error}\n{result.error.log_tail}"
    return result


def test_values_variables_and_a_second_call(pool: Pool, model: Path) -> None:
    first, second = pool.run(SavedModelArtefact(model), [{"x": X}, {"x": X[[0, 0, 0]]}], want_variables=True)
    assert first.outputs["y"].tolist() == [[8.0]]
    assert second.outputs["y"].tolist() == [[8.0]] * 3
    assert first.variables is not None and second.variables is not None
    assert set(first.variables) == {"w", "calls"}
    assert [first.variables["calls"].item(), second.variables["calls"].item()] == [1, 2]
    assert first.variables["calls"].dtype == np.int64


@pytest.mark.parametrize("loader", ["v1", "v2"])
def test_a_run_starts_from_the_saved_state_unless_it_is_kept(pool: Pool, model: Path, loader: str) -> None:
    artefact = SavedModelArtefact(model, loader="v1" if loader == "v1" else "v2")
    calls = [only(pool.run(artefact, [{"x": X}])).outputs["calls"].item() for _ in range(2)]
    kept = [only(pool.run(artefact, [{"x": X}], keep_state=True)).outputs["calls"].item() for _ in range(2)]
    assert (calls, kept) == ([1, 1], [1, 2])


def test_methods_take_positions_and_give_structures(pool: Pool, model: Path) -> None:
    result = only(pool.run(SavedModelArtefact(model, method="pair"), [{"left": X, "right": X[0]}]))
    assert {name: value.tolist() for name, value in result.outputs.items()} == {"output_0": [[0.0, 0.0]], "output_1/0": [[1.0, 2.0]]}


def test_ragged_values_come_and_go_by_component(pool: Pool, model: Path) -> None:
    request = {"values/0": np.array([1.0, 2.0, 3.0], np.float32), "values/1": np.array([0, 1, 3])}
    result = only(pool.run(SavedModelArtefact(model, method="ragged"), [request]))
    assert result.outputs["sum"].tolist() == [1.0, 5.0]
    assert result.outputs["twice/0"].tolist() == [2.0, 4.0, 6.0]
    assert result.outputs["twice/1"].tolist() == [0, 1, 3]


def test_strings_and_bfloat16_and_empty(pool: Pool, model: Path) -> None:
    text = np.array(["größe", b"a\x00b", ""], object)
    result = only(pool.run(SavedModelArtefact(model, signature="upper"), [{"text": text}]))
    assert result.outputs["upper"].tolist() == ["größe".encode().upper(), b"A\x00B", b""]
    half = only(pool.run(SavedModelArtefact(model, signature="half"), [{"h": np.array([1, 3], ml_dtypes.bfloat16)}]))
    assert half.outputs["half"].dtype == ml_dtypes.bfloat16
    assert half.outputs["half"].astype(float).tolist() == [0.5, 1.5]
    assert only(pool.run(SavedModelArtefact(model), [{"x": X[:0]}])).outputs["y"].shape == (0, 1)


def test_repeats_are_timed_inside_the_child(pool: Pool, model: Path) -> None:
    result = only(pool.run(SavedModelArtefact(model, signature="inverse"), [{"x": np.eye(2, dtype=np.float32)}], repeat=5))
    assert len(result.timings) == 5
    assert all(0 < seconds < 1 for seconds in result.timings)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "no input 'x'; expected x: float32[?, 2]"),
        ({"x": X, "z": X}, "unknown input 'z'"),
        ({"x": X.astype(np.float64)}, "input 'x' is float64"),
        ({"x": X[0]}, "has shape [2]"),
    ],
)
@pytest.mark.parametrize("loader", ["v1", "v2"])
def test_wrong_inputs_are_refused_in_words(pool: Pool, model: Path, inputs: dict[str, np.ndarray], words: str, loader: str) -> None:
    artefact = SavedModelArtefact(model, loader="v1" if loader == "v1" else "v2")
    wrong, right = pool.run(artefact, [inputs, {"x": X}])
    assert wrong.error is not None and wrong.error.kind == "input" and words in wrong.error.message
    assert right.outputs["y"].tolist() == [[8.0]]


def test_faults_have_a_kind_and_one_line(pool: Pool, model: Path, tmp_path: Path) -> None:
    singular = {"x": np.zeros((2, 2), np.float32)}
    for artefact in (SavedModelArtefact(model, signature="inverse"), SavedModelArtefact(model, signature="inverse", loader="v1")):
        (result,) = pool.run(artefact, [singular])
        assert result.error is not None and result.error.kind == "run"
        assert "Input is not invertible" in result.error.message and "\n" not in result.error.message
    for missing, words in [
        (SavedModelArtefact(tmp_path), "SavedModel"),
        (SavedModelArtefact(model, signature="no"), "'no'; the model has"),
    ]:
        (result,) = pool.run(missing, [{}])
        assert result.error is not None and result.error.kind == "load" and words in result.error.message


def test_a_saved_optimizer_does_not_stop_the_loading(pool: Pool, tmp_path: Path) -> None:
    """Slot variables of an object that plain TensorFlow does not know: `'_UserObject' object has no attribute 'add_slot'`."""
    module = Counter()
    module.optimizer = tf.Module()
    tf.saved_model.save(module, str(tmp_path), signatures=module.serve)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((tmp_path / "saved_model.pb").read_bytes())
    nodes = saved.meta_graphs[0].object_graph_def.nodes
    children = {child.local_name: child.node_id for child in nodes[0].children}
    nodes[children["optimizer"]].user_object.identifier = "unknown_optimizer"
    nodes[children["optimizer"]].slot_variables.add(
        original_variable_node_id=children["w"], slot_name="m", slot_variable_node_id=children["calls"]
    )
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(AttributeError, match="add_slot"):
        tf.saved_model.load(str(tmp_path))
    assert only(pool.run(SavedModelArtefact(tmp_path), [{"x": X}])).outputs["y"].tolist() == [[8.0]]


def test_two_logical_devices_and_a_trace(pool: Pool, model: Path) -> None:
    artefact = SavedModelArtefact(model, signature="split", loader="v1")
    result = only(pool.run(artefact, [{"x": X}], config=TWO, trace=True))
    assert result.outputs["y"].tolist() == [[8.0 + 13.0]]
    assert result.trace is not None
    nodes = {device[-5:]: [event.node.rsplit("/", 1)[-1] for event in events] for device, events in result.trace.items()}
    assert any("left" in node for node in nodes["CPU:0"])
    assert any("right" in node for node in nodes["CPU:1"])
    events = [event for events in result.trace.values() for event in events]
    assert min(event.start_seconds for event in events) == 0 and all(event.duration_seconds >= 0 for event in events)


def test_two_logical_devices_without_soft_placement(pool: Pool, model: Path) -> None:
    artefact = SavedModelArtefact(model, signature="split")
    assert only(pool.run(artefact, [{"x": X}], config=TWO)).outputs["y"].tolist() == [[21.0]]
    (refused,) = pool.run(artefact, [{"x": X}], trace=True)
    assert refused.error is not None and "loader='v1'" in refused.error.message


def test_graph_def_with_state_targets_and_initializers(pool: Pool, tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        total = tf.compat.v1.get_variable("total", initializer=tf.constant(10.0), use_resource=True)
        total.assign_add(tf.reduce_sum(x))
        keys = tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([7], tf.int64))
        table = tf.lookup.StaticHashTable(keys, -1)
        found = tf.identity(table.lookup(tf.constant(["a", "b"])), name="found")
        tf.identity(x * 2.0, name="y")
        update = next(operation.name for operation in graph.get_operations() if operation.type == "AssignAddVariableOp")
        setup = ("total/Assign", next(operation.name for operation in graph.get_operations() if "LookupTableImport" in operation.type))
    serialized = graph.as_graph_def().SerializeToString()
    file = tmp_path / "graph.pb"
    file.write_bytes(serialized)
    for source in (serialized, file):
        artefact = GraphDefArtefact(source, {"in": "x:0"}, {"out": "y:0", "found": found.name}, (update,), setup)
        request = {"in": np.array([1, 2], np.float32)}
        first, second = pool.run(artefact, [request, request], want_variables=True)
        assert first.error is None and second.error is None
        assert first.outputs["out"].tolist() == [2.0, 4.0]
        assert first.outputs["found"].tolist() == [7, -1]
        assert first.variables == {"total": np.float32(13.0)}
        assert second.variables == {"total": np.float32(16.0)}


def test_grappler_is_off_by_default_and_on_when_asked(pool: Pool) -> None:
    """(x * 1e30) * 1e-30 overflows as it must, unless Grappler merges the constants."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [], name="x")
        tf.identity((x * 1e30) * 1e-30, name="y")
    artefact = GraphDefArtefact(graph.as_graph_def().SerializeToString(), {"x": "x:0"}, {"y": "y:0"})
    request = {"x": np.array(1e20, np.float32)}
    assert np.isinf(only(pool.run(artefact, [request])).outputs["y"])
    assert np.isfinite(only(pool.run(artefact, [request], config=RuntimeConfig(grappler=True))).outputs["y"])


@pytest.mark.parametrize("loader", ["v1", "v2"])
def test_a_hang_is_killed_in_time_and_the_pool_lives_on(pool: Pool, model: Path, loader: str) -> None:
    artefact = SavedModelArtefact(model, signature="forever", loader="v1" if loader == "v1" else "v2")
    only(pool.run(artefact, [{"x": np.array(2.0, np.float32)}]))
    begin = time.monotonic()
    done, hung, dropped = pool.run(artefact, [{"x": np.array(value, np.float32)} for value in (2, 0, 2)], timeout_seconds=2.0)
    assert time.monotonic() - begin < 5.0
    assert done.outputs["y"] == 2.0
    assert hung.error is not None and hung.error.kind == "timeout" and "2 s" in hung.error.message
    assert dropped.error is not None and dropped.error.kind == "timeout"
    assert only(pool.run(SavedModelArtefact(model), [{"x": X}])).outputs["y"] == 8.0


def test_a_crash_is_reported_and_the_pool_lives_on(pool: Pool, model: Path) -> None:
    only(pool.run(SavedModelArtefact(model), [{"x": X}]))
    pid = pool.pids()[RuntimeConfig()]
    threading.Timer(0.5, os.kill, (pid, signal.SIGSEGV)).start()
    (result,) = pool.run(SavedModelArtefact(model, signature="forever"), [{"x": np.array(0.0, np.float32)}], timeout_seconds=30.0)
    assert result.error is not None and result.error.kind == "crash" and "SIGSEGV" in result.error.message
    assert only(pool.run(SavedModelArtefact(model), [{"x": X}])).outputs["y"] == 8.0


def test_a_capped_child_reports_memory(model: Path) -> None:
    with tf.Graph().as_default() as graph:
        n = tf.compat.v1.placeholder(tf.int32, [], name="n")
        tf.reduce_sum(tf.fill([n], 1.0), name="y")
    artefact = GraphDefArtefact(graph.as_graph_def().SerializeToString(), {"n": "n:0"}, {"y": "y:0"})
    with Pool() as pool:
        fits, above = pool.run(
            artefact, [{"n": np.array(n, np.int32)} for n in (1 << 20, 1 << 26)], config=RuntimeConfig(memory_limit_mb=64)
        )
    assert fits.outputs["y"] == 1 << 20
    assert above.error is not None and above.error.kind == "memory"


def test_children_are_evicted_and_closed(model: Path) -> None:
    with Pool(max_children=1) as pool:
        for config in (RuntimeConfig(), RuntimeConfig(intra_threads=1)):
            only(pool.run(SavedModelArtefact(model), [{"x": X}], config=config))
            assert list(pool.pids()) == [config]
        (pid,) = pool.pids().values()
    assert not alive(pid)


def test_children_die_with_their_parent(model: Path) -> None:
    """Killed outright, with a child in an endless loop."""
    script = (
        "import sys, threading, time, numpy as np\n"
        "from compiler.backend.pool import Pool\n"
        "from compiler.execution import SavedModelArtefact\n"
        "pool, forever = Pool(), SavedModelArtefact(sys.argv[1], signature='forever')\n"
        "pool.run(forever, [{'x': np.array(2, np.float32)}])\n"
        "threading.Thread(target=pool.run, args=(forever, [{'x': np.array(0, np.float32)}])).start()\n"
        "time.sleep(1.0)\n"
        "print(*pool.pids().values(), flush=True)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen([sys.executable, "-c", script, str(model)], cwd=root, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    deadline = time.monotonic() + 5.0
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    """Running, and not merely waiting for someone to take its status."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
