"""A module's entry as a callable: in this process where it has the devices, in a child where it has not, with the same answers."""

import numpy as np
import pytest
import tensorflow as tf

from compiler.backend.function import ChildFunction, build_callable, devices_of, local_callable
from compiler.backend.pool import Pool
from compiler.backend.profiles import PROFILES
from compiler.ir.errors import CleaveError
from compiler.ir.text import parse_module

pytestmark = pytest.mark.tf

TEXT = """
module "m"
variable @count : i64[] = tensor(i64[], [0])
entry @main(%x: f32[b], %s: string[]) -> (y = %c, n = %n, s = %s) {
  %big = Const() {value=tensor(f32[], [1e30])} : f32[]
  %small = Const() {value=tensor(f32[], [1e-30])} : f32[]
  %a = Mul(%x, %big) : f32[b]
  %c = Mul(%a, %small) : f32[b] on "DEVICE"
  %h = Variable() {ref="count"} : resource<i64[]>[]
  %one = Const() {value=tensor(i64[], [1])} : i64[]
  %add = AssignAddVariableOp(%h, %one) : ()
  %n = ReadVariableOp(%h) : i64[] after(%add)
}
"""
INPUTS = {"x": np.array([1e20, 1.0], np.float32), "s": "é"}


@pytest.mark.parametrize(("device", "is_local"), [("/device:CPU:0", True), ("/device:CPU:63", False)])
def test_state_and_values_are_kept_in_process_and_in_a_child(pool: Pool, device: str, is_local: bool) -> None:
    tf.constant(1)  # TensorFlow is in use: this process gets no more devices
    module = parse_module(TEXT.replace("DEVICE", device))
    assert devices_of(module, "main") == (1 if is_local else 64)
    function = build_callable(module, "main", pool)
    assert isinstance(function, ChildFunction) is not is_local
    for count in (1, 2):
        found = function(INPUTS)
        assert found["y"].numpy().tolist() == [np.inf, 1.0]
        assert found["n"].numpy() == count
        assert found["s"].numpy() == "é".encode()


def test_two_callables_of_one_module_do_not_share_state(pool: Pool) -> None:
    module = parse_module(TEXT.replace("DEVICE", ""))
    first, second = (build_callable(module, "main", pool) for _ in range(2))
    assert [int(f(INPUTS)["n"].numpy()) for f in (first, first, second)] == [1, 2, 1]


def test_functions_of_one_name_and_two_bodies_live_in_one_process() -> None:
    text = 'module "m"\nentry @main(%x: f32[]) -> (y = %y) {{ %y = Call(%x) {{f=@f}} : f32[] }}\n'
    text += "function @f(%x: f32[]) -> (y = %y) {{ %y = {}(%x) : f32[] }}"
    functions = [local_callable(parse_module(text.format(op)), "main", PROFILES["tf"]) for op in ("Neg", "Square")]
    assert [float(f({"x": np.float32(3)})["y"]) for f in functions] == [-3.0, 9.0]


def test_a_missing_input_is_named(pool: Pool) -> None:
    function = build_callable(parse_module(TEXT.replace("DEVICE", "")), "main", pool)
    with pytest.raises(CleaveError, match="no input 's'"):
        function({"x": INPUTS["x"]})
