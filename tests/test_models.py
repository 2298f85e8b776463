"""The small models build, run, repeat under a seed and, where they are to be trained, learn."""

from __future__ import annotations

from importlib import import_module

import keras
import numpy as np
import pytest

from fixtures.models import digit_cnn, digit_cnn_deep
from fixtures.models.digits import digits

pytestmark = pytest.mark.tf

NAMES = ("digit_cnn", "digit_cnn_deep", "mlp", "transformer", "cnn", "rnn", "two_towers")


def feeds(model: keras.Model, batch: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(batch, *(7 if size is None else size for size in tensor.shape[1:])) for tensor in model.inputs]
    drawn = [
        (rng.integers(0, 50, shape) if x.dtype == "int32" else rng.normal(size=shape))
        for x, shape in zip(model.inputs, shapes, strict=True)
    ]
    return [array.astype(tensor.dtype) for tensor, array in zip(model.inputs, drawn, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_builds_the_same_model(name: str) -> None:
    build = import_module(f"fixtures.models.{name}").build
    first, again, other = build(0), build(0), build(1)
    inputs = feeds(first, 3)
    for left, right, different in zip(
        *(keras.tree.flatten(model(inputs if len(inputs) > 1 else inputs[0])) for model in (first, again, other)), strict=True
    ):
        assert np.isfinite(left).all()
        assert np.array_equal(left, right)
        assert not np.array_equal(left, different)
        assert left.shape[0] == 3


def test_digits_repeat_and_hold_every_class() -> None:
    images, labels = digits(300, seed=4)
    assert images.shape == (300, 28, 28, 1)
    assert images.dtype == np.float32
    assert 0.0 <= images.min() < images.max() <= 1.0
    assert set(labels.tolist()) == set(range(10))
    assert np.array_equal(images, digits(300, seed=4)[0])
    assert not np.array_equal(images, digits(300, seed=5)[0])


@pytest.mark.parametrize("module", [digit_cnn, digit_cnn_deep])
def test_five_epochs_learn_the_digits(module) -> None:
    model = module.build()
    model.fit(*digits(2000, seed=1), epochs=5, batch_size=64, verbose=0)
    assert model.evaluate(*digits(500, seed=2), verbose=0, return_dict=True)["accuracy"] > 0.95
