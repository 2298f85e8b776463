"""The OpDef table without TensorFlow: what it answers and how it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from compiler.ops import opdefs


def test_variadic_outputs_and_operands_are_counted() -> None:
    assert opdefs.input_arity("ConcatV2", {"N": 3, "T": "float32"}) == 4
    assert opdefs.input_dtypes("ConcatV2", {"N": 3, "T": "float32"}) == ("float32", "float32", "float32", "int32")
    assert opdefs.output_dtypes("Split", {"num_split": 2, "T": "bfloat16"}) == ("bfloat16", "bfloat16")
    assert opdefs.output_dtypes("PartitionedCall", {"Tout": ("string", "resource"), "Tin": ()}) == ("string", "resource")
    assert opdefs.output_arity("NoOp", {}) == 0


def test_output_ranges_number_the_ports_of_each_argument() -> None:
    assert opdefs.output_ranges("FusedBatchNormV3", {})["batch_variance"] == range(2, 3)
    assert opdefs.output_ranges("Unpack", {"num": 3, "T": "float32"}) == {"output": range(3)}


def test_defaults_stand_in_for_missing_attributes() -> None:
    assert opdefs.output_dtypes("Shape", {"T": "float32"}) == ("int32",)
    assert opdefs.output_dtypes("Shape", {"T": "float32", "out_type": "int64"}) == ("int64",)


def test_attribute_definitions_are_plain_python() -> None:
    conv = opdefs.get("Conv2D")
    assert conv is not None
    assert conv.attrs["padding"].allowed == ("SAME", "VALID", "EXPLICIT")
    assert conv.attrs["dilations"].default == (1, 1, 1, 1)
    assert not conv.attrs["strides"].has_default
    placeholder = opdefs.get("Placeholder")
    assert placeholder is not None
    assert placeholder.attrs["shape"].has_default
    assert placeholder.attrs["shape"].default is None


def test_stateful_is_the_answer_for_what_is_not_known() -> None:
    assert opdefs.is_stateful("RandomUniform")
    assert not opdefs.is_stateful("Add")
    assert opdefs.is_stateful("NoSuchOp")
    assert opdefs.get("NoSuchOp") is None


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("NoSuchOp", {}, "'NoSuchOp' is no op of TensorFlow"),
        ("Add", {}, "Add: attribute 'T' is missing and has no default"),
        ("Split", {"T": "float32", "num_split": "2"}, "Split: attribute 'num_split' is '2', expected a count"),
        ("Add", {"T": 1}, "Add: attribute 'T' is 1, expected a dtype's name"),
        ("PartitionedCall", {"Tout": "float32"}, "expected a tuple of dtype names"),
    ],
)
def test_refuses_in_words(op: str, attrs: dict[str, object], message: str) -> None:
    with pytest.raises(opdefs.OpDefError, match=message):
        opdefs.output_dtypes(op, attrs)


def test_loading_takes_under_50_ms_and_no_tensorflow() -> None:
    code = (
        "import sys, time\nfrom compiler.ops import opdefs\nbest = 9.0\n"
        "for _ in range(5):\n    opdefs._table.cache_clear(); start = time.perf_counter(); opdefs.get('Add')\n"
        "    best = min(best, time.perf_counter() - start)\n"
        "assert 'tensorflow' not in sys.modules\nassert best < 0.05, best"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_line_parses() -> None:
    assert len(opdefs.names()) > 1500
    assert list(opdefs.names()) == sorted(opdefs.names())
    assert all(opdefs.get(name) is not None for name in opdefs.names())
