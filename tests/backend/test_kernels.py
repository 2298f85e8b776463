"""The registry of kernels, for devices that need not be there."""

import pytest

from compiler.ir.types import DType

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("op", "dtype", "cpu", "gpu"),
    [
        ("MatMul", "float32", True, True),
        ("Softmax", "int32", False, False),
        ("Conv2D", "float16", True, True),
        ("AddN", "int32", True, True),  # on a GPU by a kernel whose tensors are on the host
        ("Relu6", "int32", True, False),
        ("SparseSoftmax", "float32", True, False),
        ("NoSuchOp", "float32", False, False),
    ],
)
def test_kernels_by_type(op: str, dtype: str, cpu: bool, gpu: bool) -> None:
    from compiler.backend.kernels import has_kernel

    attrs = {"T": DType(dtype)}
    assert (has_kernel(op, attrs, "CPU"), has_kernel(op, attrs, "GPU")) == (cpu, gpu)


def test_strings_stay_on_the_host() -> None:
    from compiler.backend.kernels import has_kernel

    assert has_kernel("StringJoin", {}, "CPU") and not has_kernel("StringJoin", {}, "GPU")
