"""Strings to draw: what a model's own parsers ask for, and files that TensorFlow's decoders read."""

from typing import Any

import numpy as np
import pytest

from compiler.frontend.source import load
from compiler.ir.dims import symbol
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from compiler.validate.draw import draws, schemes
from compiler.validate.texts import NUMBERS, WORDS, example, image, kinds_of_text, sound

STRINGS = {"s": TensorType(DType("string"), (symbol("b"),))}


def test_texts_are_tried_where_strings_are_taken_only() -> None:
    kinds = kinds_of_text(None)
    assert kinds[:2] == (WORDS, NUMBERS)
    assert [s.texts for s in schemes(STRINGS, kinds) if not s.positive] == list(kinds)
    assert {s.texts for s in schemes({"x": TensorType(DType("float32"), (symbol("b"),))}, kinds)} == {WORDS}
    (drawn, *_) = draws(STRINGS, schemes(STRINGS, (NUMBERS,))[0])
    assert set(drawn.inputs["s"].tolist()) <= set(NUMBERS)


def test_a_parser_whose_keys_are_not_constants_asks_for_nothing() -> None:
    module = parse_module(
        'module "m"\nentry @f(%s: string[b], %k: string[1]) -> (y = %p) {\n'
        "  %none = Const() {value=tensor(string[0], [])} : string[0]\n"
        "  %d = Const() {value=tensor(f32[1], [0.0])} : f32[1]\n"
        "  %p = ParseExampleV2(%s, %none, %none, %k, %none, %d) {num_sparse=0, sparse_types=[], ragged_value_types=[], "
        "ragged_split_types=[], dense_shapes=[[1]]} : f32[b,1]\n}\n"
    )
    assert kinds_of_text(module) == kinds_of_text(None)


@pytest.mark.tf
@pytest.mark.parametrize("version", [1, 2])
def test_examples_have_the_features_that_are_parsed(version: int) -> None:
    import tensorflow as tf

    features = {
        "a": tf.io.FixedLenFeature([2, 100], tf.float32),
        "n": tf.io.FixedLenFeature([], tf.int64),
        "w": tf.io.VarLenFeature(tf.string),
        "s": tf.io.FixedLenFeature([2], tf.string),
    }
    parse = tf.io.parse_example if version == 2 else tf.io.parse_single_example

    def read(s: Any) -> Any:
        parsed = parse(s if version == 2 else s[0], features)
        return {key: tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value for key, value in parsed.items()}

    source = load(tf.function(read, input_signature=[tf.TensorSpec([None], tf.string, name="s")]))
    texts = kinds_of_text(source.module)[0]
    assert len(set(texts)) == len(texts) and texts == kinds_of_text(source.module)[0]
    parsed = read(tf.constant(texts))
    leading = [len(texts)] if version == 2 else []
    assert parsed["a"].shape == [*leading, 2, 100] and float(tf.reduce_max(parsed["a"])) > 1
    assert parsed["s"].shape == [*leading, 2]
    assert example({}, 0) == b"\n\x00"


@pytest.mark.tf
def test_images_and_sounds_are_read_by_tensorflow() -> None:
    import tensorflow as tf

    for decode in (tf.io.decode_png, tf.io.decode_jpeg, tf.io.decode_image):
        assert decode(image(0)).shape == [8, 8, 3]
    assert not np.array_equal(tf.io.decode_png(image(0)), tf.io.decode_png(image(1)))
    samples, rate = tf.audio.decode_wav(sound(0))
    assert samples.shape == [16000, 1] and int(rate) == 16000
