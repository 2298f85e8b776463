"""Four and eight devices are a mesh of two axes: one factor over each, or one over both; what is emitted computes the same."""

import numpy as np
import pytest

from compiler.ir.text import parse_module
from passes.split.choose import Objective
from passes.split.mesh import mesh_over
from tests.passes.splitting import requests
from tests.passes.test_split import MLP, chosen, partition, split


@pytest.mark.parametrize(
    ("count", "axes"),
    [(2, "[d=2]"), (3, "[d=3]"), (4, "[x=2, y=2]"), (6, "[x=2, y=3]"), (7, "[d=7]"), (8, "[x=2, y=4]"), (1024, "[x=32, y=32]")],
)
def test_the_axes_are_as_nearly_equal_as_the_count_allows(count: int, axes: str) -> None:
    assert str(mesh_over([f"/device:CPU:{k}" for k in range(count)])) == axes


IMAGES = """module "m" facts(typed)

entry @f(%x: f32[2,28,28,64]) -> (y = %y) {
  %w1 = Const() {value=splat(f32[3,3,64,256], 0.01)} : f32[3,3,64,256] from(l)
  %w2 = Const() {value=splat(f32[1,1,256,64], 0.02)} : f32[1,1,256,64] from(l)
  %c1 = Conv2D(%x, %w1) {padding="SAME", strides=[1,1,1,1]} : f32[2,28,28,256] from(l)
  %r = Relu(%c1) : f32[2,28,28,256] from(l)
  %c2 = Conv2D(%r, %w2) {padding="SAME", strides=[1,1,1,1]} : f32[2,28,28,64] from(l)
  %y = AddV2(%c2, %x) : f32[2,28,28,64] from(l)
}
"""
SMALL = IMAGES.replace("256", "24").replace("64", "16").replace("28", "13")


def test_two_images_on_four_devices_are_divided_by_batch_and_by_something_else() -> None:
    ways = chosen(split(IMAGES, "cpu:4")[1])
    assert ways["c1"].startswith("n:") and ways["c1"].count(":") == 2, ways


def test_one_factor_takes_all_devices_where_that_is_best() -> None:
    ways = chosen(split(MLP.format(batch=1), "cpu:4")[1])
    assert ways == {"h": "n:x*y", "r": "d1:x*y", "y": "k:x*y"}


@pytest.mark.tf
@pytest.mark.parametrize("devices", [4, 6, 8])
@pytest.mark.parametrize("text", [SMALL, MLP.format(batch=7).replace("4096", "96").replace("1024", "40")], ids=["images", "mlp"])
def test_what_is_emitted_computes_the_same(text: str, devices: int, run_module) -> None:  # type: ignore[no-untyped-def]
    module, plan, context = split(text, f"cpu:{devices}", Objective.MEMORY)
    assert any("*" in way or "," in way for way in chosen(plan).values()), chosen(plan)
    partition(module, context)
    given = requests(module, (7,))
    (expected,), (found,) = run_module(parse_module(text), given, 8), run_module(module, given, 8)
    assert expected.error is None and found.error is None, (expected.error, found.error)
    np.testing.assert_allclose(found.outputs["y"], expected.outputs["y"], rtol=2e-6, atol=2e-6)
