"""Measurement files: the same bytes again, and faults in one line."""

from pathlib import Path

import pytest

from compiler.ir.errors import CleaveError
from compiler.ir.text import parse_module
from compiler.ops.queries import operation
from cost_model.measured import FORMAT, Measured, read_measured, signature, write_measured


def test_a_file_and_back(tmp_path: Path) -> None:
    measured = Measured({"CPU": {"Relu(f32[8])": 1e-5}, "GPU": {}})
    write_measured(measured, tmp_path / "m.json")
    assert read_measured(tmp_path / "m.json") == measured


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "expected {"),
        ('{"format": "other", "seconds": {}}', FORMAT),
        (f'{{"format": "{FORMAT}", "seconds": {{"CPU": {{"a": -1}}}}}}', "expected seconds of at least 0"),
        (f'{{"format": "{FORMAT}", "seconds": {{"CPU": 3}}}}', "expected seconds of at least 0"),
        (f'{{"format": "{FORMAT}", "seconds": {{"CPU": {{"a": NaN}}}}}}', "expected seconds of at least 0"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "m.json").write_text(text, encoding="utf-8")
    with pytest.raises(CleaveError) as caught:
        read_measured(tmp_path / "m.json")
    assert words in str(caught.value)
    with pytest.raises(CleaveError, match="no such file"):
        read_measured(tmp_path / "none.json")


def test_a_signature_is_concrete() -> None:
    module = parse_module("""module "m"
entry @main(%x: f32[b,8]) -> (y = %y) {
  %p = Const() {value=tensor(i32[2], [1, 0])} : i32[2]
  %y = Transpose(%x, %p) : f32[8,b]
}""")
    found = operation(module, module.entries["main"], "y")
    assert signature(found, {"b": 3}).startswith("Transpose(f32[3,8], i32[2]=(1,0)) {")
    assert signature(found, {"b": 3}) != signature(found, {"b": 4})
