"""Measured seconds take the place of the roofline, operator by operator; the measurements are a named input file, never taken here.

{"format": "cleave-measurements-1", "seconds": {"CPU": {"MatMul(f32[8,16], f32[16,4]) {transpose_a=False}": 1.2e-05}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.ir.errors import CleaveError
from compiler.ir.types import TensorType
from compiler.ops.spec import Operation
from cost_model.analytic import size_of_dim

FORMAT = "cleave-measurements-1"


@dataclass(frozen=True)
class Measured:
    """Seconds by device kind and operator signature."""

    seconds: Mapping[str, Mapping[str, float]]

    def find(self, kind: str, operation: Operation, sizes: Mapping[str, int]) -> float | None:
        """The measured seconds of this operator at these sizes on this kind of device, None where nobody measured it."""
        table = self.seconds.get(kind)
        return None if table is None else table.get(signature(operation, sizes))


def signature(operation: Operation, sizes: Mapping[str, int]) -> str:
    """What the time of an operator depends on, as text: its op, concrete operand types, small integer operands, attributes."""
    operands = ", ".join(_operand(operation, slot, sizes) for slot in range(len(operation.operands)))
    attrs = ", ".join(
        f"{name}={value!s}" if not isinstance(value, bytes) else f"{name}={value!r}" for name, value in sorted(operation.attrs.items())
    )
    return f"{operation.op}({operands}) {{{attrs}}}"


def _operand(operation: Operation, slot: int, sizes: Mapping[str, int]) -> str:
    content = operation.content(slot)
    value = "" if content is None else f"={content}".replace(" ", "")
    return f"{_concrete(operation.operands[slot], sizes)}{value}"


def _concrete(type_: TensorType, sizes: Mapping[str, int]) -> str:
    shape = None if type_.shape is None else tuple(size_of_dim(d, sizes) for d in type_.shape)
    return str(TensorType(type_.dtype, shape, None, type_.handle))


def read_measured(path: Path) -> Measured:
    """The measurements of a file; CleaveError says what is wrong with it."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CleaveError(f"measurements {str(path)!r}: no such file") from None
    except (OSError, ValueError) as error:
        raise CleaveError(f"measurements {str(path)!r} cannot be read: {error}") from None
    if not isinstance(table, dict) or table.get("format") != FORMAT or not isinstance(table.get("seconds"), dict):
        raise CleaveError(f'measurements {str(path)!r}: expected {{"format": "{FORMAT}", "seconds": {{kind: {{signature: seconds}}}}}}')
    for kind, rows in table["seconds"].items():
        for name, value in rows.items() if isinstance(rows, dict) else [("", None)]:
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise CleaveError(f"measurements {str(path)!r}: {kind} {name!r} is {value!r}, expected seconds of at least 0")
    return Measured(table["seconds"])


def write_measured(measured: Measured, path: Path) -> None:
    """The file that `read_measured` reads, the same bytes for the same measurements."""
    table = {"format": FORMAT, "seconds": measured.seconds}
    path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
