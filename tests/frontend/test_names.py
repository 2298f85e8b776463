"""Names of functions and devices in one form, whatever TensorFlow's counters and spellings were."""

import pytest

from compiler.frontend.devices import canonical_device
from compiler.frontend.names import Names, stem_of
from compiler.ir.errors import CleaveError


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("__inference_serve_1234", "serve"),
        ("__inference___call___214", "__call__"),
        ("__forward_gelu_7_12", "gelu"),
        ("model_1_gru_1_while_body_5423", "model_1_gru_1_while_body"),
        ("while_cond_9_rewritten", "while_cond"),
        ("cond_true_57", "cond_true"),
        ("zero_count_false_49655", "zero_count_false"),
        ("f_1", None),
        ("step", None),
        ("layer_12", None),
    ],
)
def test_only_generated_names_have_a_stem(name: str, stem: str | None) -> None:
    assert stem_of(name) == stem


def test_names_are_unique_chosen_ones_are_kept_and_entries_are_avoided() -> None:
    library = ["__inference_f_9", "__inference_f_12", "f", "f_1", "main", "F"]
    names = Names(library, reserved=("main",))
    given = [names.of(name) for name in library]
    assert given == ["f_2", "f_3", "f", "f_1", "main_1", "F"]
    assert [names.of(name) for name in library] == given


def test_a_counter_does_not_show() -> None:
    for shift in (0, 1000):
        names = Names([f"__inference_a_{shift + 3}", f"__inference_a_{shift + 20}"])
        assert [names.of(f"__inference_a_{shift + n}") for n in (20, 3)] == ["a", "a_1"]


@pytest.mark.parametrize(
    ("device", "canonical"),
    [
        ("", ""),
        ("/cpu:0", "/device:CPU:0"),
        ("/device:cpu:1", "/device:CPU:1"),
        ("/CPU:1", "/device:CPU:1"),
        ("/job:localhost/replica:0/task:0/device:GPU:3", "/device:GPU:3"),
        ("/job:worker/replica:0/task:1/gpu:0", "/job:worker/task:1/device:GPU:0"),
        ("/job:ps/task:2", "/job:ps/task:2"),
        ("/device:CPU:*", "/device:CPU:*"),
        ("/device:CPU", "/device:CPU:*"),
        ("/task:0", ""),
    ],
)
def test_devices_have_one_spelling(device: str, canonical: str) -> None:
    assert canonical_device(device) == canonical
    assert canonical_device(canonical) == canonical


def test_what_is_no_device_is_refused() -> None:
    with pytest.raises(CleaveError, match="'/kitchen' is no device"):
        canonical_device("/kitchen")
