"""Published models are imported whole: they verify, print and parse back, and have the nodes, state and results that they have."""

import pytest

from compiler.frontend.source import SourceModel, load
from compiler.ir.text import equal, parse_module, print_module
from compiler.ir.verify import verify
from fixtures import zoo

pytestmark = [pytest.mark.tf, pytest.mark.system]

# name: (nodes at least, functions, variables, tables), as counted in the files by other means: saved_model_cli and the protos.
COUNTS = {
    "basic_pitch": (700, 2, 24, 0),
    "guesslang": (433, 2, 9, 1),
    "sleepecg_ws": (677, 11, 20, 0),
    "sleepecg_wrn": (677, 11, 20, 0),
    "sleepecg_wrn_weighted": (677, 11, 20, 0),
    "crema_chord": (678, 11, 44, 0),
    "cutkum": (301, 0, 0, 0),
    "deepbrain": (279, 0, 0, 0),
    "mobilenet_v2": (1320, 3, 262, 0),
    "resnet50": (2156, 3, 320, 0),
    "efficientnet_b0": (2440, 3, 311, 0),
    "bert_tiny": (456, 3, 39, 0),
    "gpt2_small": (905, 3, 68, 0),
    "distilbert": (582, 3, 52, 0),
    "vit_tiny": (751, 3, 70, 0),
}


def read(name: str) -> SourceModel:
    model = zoo.get(name)
    return load(zoo.path(name), outputs=model.outputs if model.kind == "frozen" else None)


@pytest.mark.parametrize("name", zoo.names())
def test_the_whole_model_is_there(name: str) -> None:
    module = read(name).module
    verify(module)
    assert equal(parse_module(print_module(module)), module)
    nodes, functions, variables, tables = COUNTS[name]
    assert sum(len(graph) for graph in module.graphs.values()) >= nodes
    assert (len(module.functions), len(module.variables), len(module.resources)) == (functions, variables, tables)
    assert all(variable.initial is not None for variable in module.variables.values())


@pytest.mark.parametrize("name", zoo.names())
def test_it_takes_and_gives_what_its_entry_says(name: str) -> None:
    model, source = zoo.get(name), read(name)
    graph = source.module.entries[model.signature]
    feeds = model.inputs(1, 0)
    assert set(graph.inputs) == set(feeds)
    for key, array in feeds.items():
        assert len(graph.node(key).type.shape or array.shape) == array.ndim
    if model.outputs:
        assert {o.name for o in graph.outputs} == {name.removesuffix(":0") for name in model.outputs}


def test_an_estimators_signatures_share_its_table_and_weights() -> None:
    module = read("guesslang").module
    used = {key: {str(node.attrs["ref"]) for node in graph if node.op in ("Variable", "Resource")} for key, graph in module.entries.items()}
    assert len(used) == 3
    assert used["serving_default"] == used["classification"] <= used["predict"]
    assert "head/predictions/class_string_lookup/hash_table" in used["predict"]


def test_only_the_network_is_taken_from_a_file_with_its_training_beside() -> None:
    source = load(zoo.path("deepbrain"))
    assert [o.name for o in source.module.entries["serving_default"].outputs] == ["prob"]
    assert set(source.signatures["serving_default"].inputs) == {"img", "training"}


def test_a_loop_of_version_1_has_all_its_nodes() -> None:
    graph = read("cutkum").module.entries["serving_default"]
    control_flow = [node.op for node in graph if node.op in ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond")]
    assert len(control_flow) == 57
