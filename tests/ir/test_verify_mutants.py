"""The tests of the verifier, tested: every small change of one of its rules lets a broken module through, or refuses a sound one."""

from __future__ import annotations

import ast
import inspect
import types
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.ir import invariants_graph, invariants_module
from compiler.ir.sharding import Sharding
from compiler.ir.verify import STRUCTURE, faults
from tests.ir.test_verify import BROKEN, _place, set_variable, sound
from tests.tools import mutate

WORDS = ("len(cycle) > 6", "number: 6")
"""How much of a long cycle is told."""
ELSEWHERE = ("weights", "_reference_faults")
"""Rules whose broken modules need files, and are tested with them in `test_verify`."""
NOT_SEEN = {
    "comparison: sharding.axes() <= axes  =>  sharding.axes() < axes",  # no module here uses every axis of its mesh
    "and/or: type_.rank is not None and len(sharding.dims) != type_.rank  =>  type_.rank is not None or len(sharding.dims) != type_.rank",
    "statement left out: done.update(cycle)  =>  pass",  # one cycle is told once for each of its members
    "statement left out: done.add(name)  =>  pass",  # slower, and the same
    "continue is break: continue  =>  break",  # where what is passed over comes last
}


def noticed(module: types.ModuleType) -> bool:
    """Do the sound and the broken modules of `test_verify` tell this from the rules as they are?"""
    rules = [replace(r, check=getattr(module, r.check.__name__)) if r.check.__module__ == module.__name__ else r for r in STRUCTURE]
    placed = sound("partitioned", "placed")
    _place(placed, "x", "sum")
    bare = sound()
    bare.mesh = None
    divided = sound("annotated")
    set_variable(divided, sharding=Sharding((("x",),)))
    try:
        if any(faults(m, rules) for m in (sound(), sound("annotated"), placed, bare, divided)):
            return True
        for name, facts, breaks, told in BROKEN:
            broken = sound(*facts)
            breaks(broken, broken.entries["main"])
            found = faults(broken, [r for r in rules if r.name == name])
            if not any(told in fault.message for fault in found):
                return True
    except Exception:
        return True
    return False


def mutants(original: types.ModuleType) -> list[mutate.Mutant]:
    file = Path(str(original.__file__))
    count = len(mutate._sites(ast.parse(file.read_text(encoding="utf-8"))))
    return [mutate.mutant(file, i) for i in range(count)]


def lines_of(original: types.ModuleType, name: str) -> range:
    text, first = inspect.getsourcelines(getattr(original, name))
    return range(first, first + len(text))


@pytest.mark.parametrize("original", [invariants_graph, invariants_module], ids=["graph", "module"])
def test_every_mutant_of_a_rule_is_noticed(original: types.ModuleType) -> None:
    left_out = {line for name in ELSEWHERE if hasattr(original, name) for line in lines_of(original, name)}
    assert not noticed(original)
    tried, unseen = 0, set()
    for mutant in mutants(original):
        if mutant.line in left_out or any(word in mutant.what for word in WORDS):
            continue
        changed = types.ModuleType(original.__name__)
        exec(compile(mutant.text, mutant.file, "exec"), changed.__dict__)
        tried += 1
        if not noticed(changed):
            unseen.add(mutant.what)
    assert tried >= 25
    assert unseen <= NOT_SEEN
