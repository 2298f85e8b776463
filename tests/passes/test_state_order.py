"""A law: whatever calls, reads and writes a program nests, its state is read and written in the same order once everything is inlined.

Programs are drawn as tf.function would trace them: a read waits for the last write, a write for the last write and the reads since.
Now and then, as in a v1 graph, a write is behind a read by nothing but a size that is computed from what was read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.checks import RunModule, run

SEEDS = range(60)
PIPELINES = (
    "inline-calls",
    "order-effects,inline-calls,freeze-variables,order-effects,relax-controls,infer-types,"
    "repeat(simplify,resolve-shapes,infer-types,cse,dce)",
)
KINDS = ("read", "write", "write", "constant", "pure", "call", "linked")
INITIAL = {"g": 1.0, "k": 2.0}
VARIABLES = "".join(f"variable @{name} : f32[2] = splat(f32[2], {value})\n" for name, value in INITIAL.items())
ENTRY = """entry @f(%v: f32[2]) -> (y = %{result}) {{
  %h = Variable() {{ref="g"}} : resource<f32[2]>[] from(h)
  %k = Variable() {{ref="k"}} : resource<f32[2]>[] from(k)
{lines}
}}"""
BODY = "function @{name}(%h: resource<f32[2]>[], %k: resource<f32[2]>[], %v: f32[2]) -> (r = %{result}) {{\n{lines}\n}}"


@dataclass
class Drawn:
    """A graph's statements as they are drawn, and who waits for whom."""

    rng: random.Random
    callees: list[str]
    lines: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=lambda: ["v"])
    writer: dict[str, str] = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=lambda: {"h": [], "k": []})

    def draw(self) -> None:
        for k in range(self.rng.randint(2, 6)):
            kind = self.rng.choice(KINDS)
            self.statement("read" if kind == "call" and not self.callees else kind, f"n{k}")

    def statement(self, kind: str, name: str) -> None:
        handle, value = self.rng.choice(["h", "k"]), self.rng.choice(self.values)
        if kind == "linked" and not self.readers[handle]:
            self.linked(handle, name)
            return
        if kind == "constant":
            value = f"c_{name}"
            self.lines.append(f"  %{value} = Const() {{value=splat(f32[2], {name[1:]}.5)}} : f32[2] from({value})")
        if kind == "pure":
            self.lines.append(f"  %{name} = Neg(%{value}) : f32[2] from({name})")
        elif kind == "read":
            self.lines.append(
                f"  %{name} = ReadVariableOp(%{handle}) {{dtype=f32}} : f32[2] from({name})" + self.wait(name, [handle], False)
            )
        elif kind == "call":
            call = f"  %{name} = Call(%h, %k, %{value}) {{f=@{self.rng.choice(self.callees)}}} : f32[2] from({name})"
            self.lines.append(call + self.wait(name, ["h", "k"], True))
        else:
            write = f"  %{name} = AssignVariableOp(%{handle}, %{value}) {{dtype=f32}} : () from({name})"
            self.lines.append(write + self.wait(name, [handle], True))
        if kind in ("pure", "read", "call"):
            self.values.append(name)

    def linked(self, handle: str, name: str) -> None:
        self.statement_of_read(handle, f"{name}_r")
        self.lines += [
            f"  %{name}_s = Shape(%{name}_r) : i32[1] from({name})",
            f"  %{name}_v = Reshape(%v, %{name}_s) : f32[2] from({name})",
            f"  %{name} = AssignVariableOp(%{handle}, %{name}_v) {{dtype=f32}} : () from({name})",
        ]
        self.writer[handle], self.readers[handle] = name, []

    def statement_of_read(self, handle: str, name: str) -> None:
        read = f"  %{name} = ReadVariableOp(%{handle}) {{dtype=f32}} : f32[2] from({name})"
        self.lines.append(read + self.wait(name, [handle], False))

    def wait(self, name: str, handles: list[str], writes: bool) -> str:
        before = {self.writer[h] for h in handles if h in self.writer}
        for handle in handles:
            if writes:
                before.update(self.readers[handle])
                self.writer[handle], self.readers[handle] = name, []
            else:
                self.readers[handle].append(name)
        return f" after({', '.join(f'%{b}' for b in sorted(before))})" if before else ""

    def text(self, form: str, name: str) -> str:
        return form.format(name=name, result=self.rng.choice(self.values), lines="\n".join(self.lines))


def program(seed: int) -> str:
    rng = random.Random(seed)
    names: list[str] = []
    bodies: list[str] = []
    for depth in range(rng.randint(1, 3)):
        drawn = Drawn(rng, list(names))
        drawn.draw()
        names.append(f"b{depth}")
        bodies.append(drawn.text(BODY, names[-1]))
    entry = Drawn(rng, names)
    entry.draw()
    entry.statement("call", "last")
    return "\n".join(['module "m" facts(typed)\n', VARIABLES, entry.text(ENTRY, "f"), *bodies])


@pytest.mark.parametrize("pipeline", PIPELINES, ids=["inlined", "canonical"])
def test_state_keeps_its_order(pipeline: str) -> None:
    for seed in SEEDS:
        text = program(seed)
        run(text, "infer-types")  # valid as it is drawn
        module, context = run(text, pipeline)  # the verifier wants a path between any two that conflict
        assert not module.functions and any(note.pass_name == "inline-calls" for note in context.notes), text


@pytest.mark.tf
@pytest.mark.parametrize("seed", range(8))
def test_outputs_and_variables_are_the_same_over_two_calls(seed: int, run_module: RunModule) -> None:
    text = program(seed)
    requests = [{"v": np.array([3.0, -0.0], np.float32)}, {"v": np.array([np.nan, 7.0], np.float32)}]
    whole, inlined = run(text, "infer-types")[0], run(text, PIPELINES[1])[0]
    expected, found = (run_module(m, requests, want_variables=True) for m in (whole, inlined))
    for one, other in zip(expected, found, strict=True):
        assert one.error is None and other.error is None, (one.error, other.error)
        assert one.variables is not None and other.variables is not None
        np.testing.assert_array_equal(other.outputs["y"], one.outputs["y"])
        assert one.variables
        for name, array in sorted(one.variables.items()):
            left = np.full(2, INITIAL[name], np.float32)  # what nothing writes was frozen, and is no variable any more
            np.testing.assert_array_equal(other.variables.get(name, left), array)
