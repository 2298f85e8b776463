"""What a node stores and what its operands tell: several open counts cannot be read off one list of operands, so they are stored."""

import pytest

from compiler.ir.errors import IrError
from compiler.ir.graph import Attr
from compiler.ir.types import DType
from compiler.ops.attributes import complete, implied_by_operands, stored

I64, STRING, F32 = DType("int64"), DType("string"), DType("float32")


@pytest.mark.parametrize(
    ("op", "attrs", "operands"),
    [
        ("SparseCross", {"N": 0, "sparse_types": (), "dense_types": (I64, I64)}, [I64, I64]),
        ("SparseCross", {"N": 1, "sparse_types": (STRING,), "dense_types": (I64,)}, [I64, STRING, I64, I64]),
        ("ParseExample", {"Nsparse": 2, "Ndense": 1, "Tdense": (F32,)}, [STRING] * 5 + [F32]),
        ("ParseExample", {"Nsparse": 1, "Ndense": 2, "Tdense": (F32, I64)}, [STRING] * 5 + [F32, I64]),
    ],
)
def test_several_open_counts_are_stored(op: str, attrs: dict[str, Attr], operands: list[DType]) -> None:
    kept = stored(op, attrs, operands)
    assert {name: kept[name] for name in attrs} == attrs
    assert {name: complete(op, kept, operands)[name] for name in attrs} == attrs
    with pytest.raises(IrError, match="operands do not fit its arguments"):
        complete(op, {}, operands)


def test_one_open_count_and_types_are_told_by_the_operands() -> None:
    assert implied_by_operands("ConcatV2") == {"N", "T", "Tidx"}
    assert stored("ConcatV2", {"N": 2, "T": F32}, [F32, F32, DType("int32")]) == {}
    assert implied_by_operands("SparseCross") == set()
    assert implied_by_operands("NoSuchOp") == set()
