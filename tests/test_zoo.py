"""Every model of the zoo is what its entry says: it loads, takes the inputs its entry draws, and answers with numbers worth comparing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from fixtures import zoo

pytestmark = [pytest.mark.tf, pytest.mark.system]

Arrays = dict[str, np.ndarray]


def run_saved_model(path: Path, signature: str, feeds: Arrays) -> Arrays:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        declared = meta_graph.signature_def[signature]
        assert sorted(declared.inputs) == sorted(feeds)
        fed = {declared.inputs[name].name: array for name, array in feeds.items()}
        return session.run({name: info.name for name, info in declared.outputs.items()}, fed)


def run_frozen(path: Path, outputs: tuple[str, ...], feeds: Arrays) -> Arrays:
    graph_def = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run({name: graph.get_tensor_by_name(name) for name in outputs}, {f"{name}:0": a for name, a in feeds.items()})


def run_keras(path: Path, feeds: Arrays) -> Arrays:
    (array,) = feeds.values()
    return {"output_0": tf.keras.models.load_model(path)(array).numpy()}


def run(model: zoo.ZooModel, feeds: Arrays) -> Arrays:
    path = zoo.path(model.name)
    if model.kind == "frozen":
        return run_frozen(path, model.outputs, feeds)
    if model.kind == "keras":
        return run_keras(path, feeds)
    return run_saved_model(path, model.signature, feeds)


@pytest.mark.parametrize("name", zoo.names())
def test_model_runs_and_its_floats_depend_on_its_inputs(name: str) -> None:
    model = zoo.get(name)
    first, second = (run(model, model.inputs(1, seed)) for seed in (1, 2))
    assert not model.outputs or sorted(first) == sorted(model.outputs)
    for key, array in first.items():
        if array.dtype.kind != "f":
            continue
        assert np.isfinite(array).all(), key
        # A dead network answers every input alike up to rounding, and then any compiler passes on it.
        assert np.abs(array - second[key]).max() > 0.01 * array.std(), key


@pytest.mark.parametrize("name", [name for name in zoo.names() if name != "deepbrain"])
def test_model_takes_a_batch_and_draws_the_same_inputs_twice(name: str) -> None:
    model = zoo.get(name)
    feeds = model.inputs(3, 1)
    assert all(np.array_equal(array, feeds[key]) for key, array in model.inputs(3, 1).items())
    results = run(model, feeds)
    batch_axis = 1 if name == "cutkum" else 0
    assert {array.shape[batch_axis] for array in results.values()} == {3}


def test_unknown_model_is_refused_with_the_list() -> None:
    with pytest.raises(zoo.ZooError, match="no model 'alexnet' in the zoo; it has basic_pitch"):
        zoo.path("alexnet")
