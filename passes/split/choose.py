"""Choose annotates: each value of an entry gets the sharding that makes the whole cheapest.

    %y = MatMul(%x, %w) : f32[b,8]   =>   %y = MatMul(%x, %w) {_factors=["n:d"]} : f32[b,8]@[_,d]

    minimise  sum over nodes of seconds(strategy)  +  sum over edges of reshard seconds(how the value lies, how it is wanted)
    latency and memory divide dimensions of static size only: a batch known at run time alone may be 1 then
    memory:   the bytes of constants on the fullest device weigh more than any time (`MEMORY_WEIGHT` seconds per byte)

Seconds are the cost model's, at the module's representative sizes; the minimum is `solve`'s, its bound is kept beside the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from compiler.ir.errors import CleaveError
from compiler.ir.graph import INPUT, Graph, Node
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh, Windowed
from compiler.ir.types import TensorType
from compiler.ops.effects import Bodies
from compiler.ops.queries import infer_graph, operation
from compiler.ops.regions import in_control_flow
from compiler.pipeline.base import ANNOTATED, TYPED, Context, Pass
from cost_model.cluster import Cluster
from cost_model.model import CostModel
from passes.split.derivation import Derivation
from passes.split.factors import ATTRIBUTE, attribute
from passes.split.mesh import mesh_over
from passes.split.prices import Reshards
from passes.split.problem import FORBIDDEN, Problem, Solution, Vector
from passes.split.solve import solve
from passes.split.strategies import Considered, Enumerator, Strategy
from passes.split.study import Candidate, Option, Study, constrained
from passes.split.wishes import Wishes, allowed, fixed_by

MEMORY_WEIGHT = 1.0
"""Seconds that a byte of constants on the fullest device counts as, under the memory objective."""


class Objective(Enum):
    LATENCY = "latency"
    THROUGHPUT = "throughput"
    MEMORY = "memory"


@dataclass(frozen=True)
class Alternative:
    """A strategy that was considered: seconds of the node itself, and of the reshards around it, its neighbours as chosen."""

    label: str
    seconds: float
    reshard_seconds: float
    weight_bytes: float = 0.0
    """Of the constants it reads, on the fullest device."""


@dataclass(frozen=True)
class Decision:
    """What was chosen for one node, among what, or why there was nothing to choose."""

    entry: str
    node: str
    op: str
    origin: tuple[str, ...]
    chosen: str
    alternatives: tuple[Alternative, ...]
    refusal: str = ""


@dataclass
class SplitPlan:
    """A service that choose fills: the decisions, and how good the whole is proven to be; partition adds what it derived."""

    decisions: list[Decision] = field(default_factory=list)
    solutions: dict[str, Solution] = field(default_factory=dict)
    derivations: tuple[Derivation, ...] = ()
    studies: dict[str, Study] = field(default_factory=dict)


@dataclass(frozen=True)
class Choose(Pass):
    """Enumerate, price, solve, annotate."""

    name = "choose"
    requires = frozenset({TYPED})
    establishes = frozenset({ANNOTATED})
    iterations: int = 60

    def run(self, module: Module, context: Context) -> None:
        cluster = context.service(Cluster)
        workers = tuple(d.name for d in cluster.workers)
        wishes = _wishes(context)
        if len(workers) < 2:
            if wishes.splits:
                raise CleaveError(
                    f"{next(iter(wishes.splits))!r} is to be split, but cluster {cluster.name!r} has one device to split over"
                )
            return
        module.mesh = mesh_over(workers)
        choosers = {
            entry: _Chooser(module, graph, module.mesh, CostModel(cluster), _objective(context), context)
            for entry, graph in module.entries.items()
        }
        fixed = _fixed(choosers, wishes)
        for entry, chooser in choosers.items():
            chooser.run(entry, self.iterations, fixed[entry], wishes)


def _objective(context: Context) -> Objective:
    found = context.services.get(Objective)
    return found if isinstance(found, Objective) else Objective.LATENCY


def _wishes(context: Context) -> Wishes:
    found = context.services.get(Wishes)
    return found if isinstance(found, Wishes) else Wishes()


def _fixed(choosers: Mapping[str, _Chooser], wishes: Wishes) -> dict[str, dict[int, str]]:
    """For each entry the positions that are fixed: by the plan to follow, and by the user's word, which wins."""
    for chooser in choosers.values():
        chooser.enumerate()
    where = [(entry, i, c) for entry, chooser in choosers.items() for i, c in enumerate(chooser.candidates())]
    found: dict[str, dict[int, str]] = {entry: choosers[entry].followed(entry, wishes) for entry in choosers}
    for position, wish in fixed_by(wishes.splits, [(c.named, c.labels) for _, _, c in where]).items():
        entry, i, _ = where[position]
        found[entry][i] = wish
    return found


@dataclass
class _Chooser:
    module: Module
    graph: Graph
    mesh: Mesh
    costs: CostModel
    objective: Objective
    context: Context
    considered: list[Considered] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    links: dict[tuple[int, int], list[tuple[int, int, TensorType]]] = field(default_factory=dict)
    """(producer, consumer) -> the values between them: port, slot, type."""
    reshards: Reshards = field(init=False)
    _candidates: tuple[Candidate, ...] = ()

    def __post_init__(self) -> None:
        self.reshards = Reshards(self.costs, self.mesh, self.module.sizes)

    def run(self, entry: str, iterations: int, fixed: Mapping[int, str], wishes: Wishes) -> None:
        problem, candidates = self._problem(), self.candidates()
        starts = [self._start(fixed, {}), self._start(fixed, wishes.chosen.get(entry, {}))]
        solution = solve(constrained(problem, fixed, candidates), iterations, list(dict.fromkeys(starts)))
        self._annotate(solution)
        plan = self.context.services.get(SplitPlan)
        if isinstance(plan, SplitPlan):
            static_only = self.objective is not Objective.THROUGHPUT
            plan.studies[entry] = Study(candidates, problem, solution, iterations, static_only, len(self.mesh.devices), fixed)
        self._report(entry, problem, solution)

    def _start(self, fixed: Mapping[int, str], chosen: Mapping[str, str]) -> tuple[int, ...]:
        """Nothing split, or as an earlier plan has it, but for what is fixed."""
        start = []
        for i, candidate in enumerate(self.candidates()):
            may = allowed(fixed[i] if i in fixed else chosen.get(candidate.name, ""), candidate.labels)
            start.append(may.index(True) if any(may) else 0)
        return tuple(start)

    def followed(self, entry: str, wishes: Wishes) -> dict[int, str]:
        """What the plan to follow says of this entry, where it was made for as many devices; what cannot be done again is said."""
        found: dict[int, str] = {}
        known = wishes.chosen.get(entry, {}) if wishes.devices == len(self.mesh.devices) else {}
        for i, candidate in enumerate(self.candidates()):
            label = known.get(candidate.name)
            if label in candidate.labels:
                found[i] = label
            elif known and label != "whole" and candidate.operation.op != INPUT:
                why = f"the plan has {label} for it" if label else "the plan does not know it"
                self.context.refuse(candidate.name, f"{why}; {candidate.operation.op} is chosen anew")
        return found

    def candidates(self) -> tuple[Candidate, ...]:
        """What is considered for each operator, as data."""
        if not self._candidates:
            self._candidates = tuple(self._candidate(considered) for considered in self.considered)
        return self._candidates

    def _candidate(self, considered: Considered) -> Candidate:
        options = tuple(Option(s.label, s.seconds, self._weight_bytes(considered, s)) for s in considered.strategies)
        node = self.graph.node(considered.name)
        return Candidate(considered.name, considered.operation, node.origin, options, considered.refusal)

    def enumerate(self) -> None:
        contents = infer_graph(self.module, self.graph).contents
        enumerator = Enumerator(self.module, self.graph, self.mesh, self.costs, Bodies(self.module), in_control_flow(self.graph))
        enumerator.static_only = self.objective is not Objective.THROUGHPUT
        for name in self.graph.order():
            node = self.graph.node(name)
            if node.op == "Const":
                continue
            self.index[name] = len(self.considered)
            self.considered.append(enumerator.consider(node, operation(self.module, self.graph, name, contents)))
            for slot, value in enumerate(self.graph.operands(name)):
                if value.node in self.index:
                    key = (self.index[value.node], self.index[name])
                    self.links.setdefault(key, []).append((value.port, slot, self.graph.type_of(value)))

    def _problem(self) -> Problem:
        costs = tuple(np.array([self._cost(c, s) for s in c.strategies]) for c in self.considered)
        edges = tuple((i, j, self._matrix(i, j, values)) for (i, j), values in self.links.items())
        return Problem(costs, edges)

    def _cost(self, considered: Considered, strategy: Strategy) -> float:
        if self.objective is not Objective.MEMORY:
            return strategy.seconds
        return strategy.seconds + MEMORY_WEIGHT * self._weight_bytes(considered, strategy)

    def _weight_bytes(self, considered: Considered, strategy: Strategy) -> float:
        """Bytes of constants that this strategy puts on the fullest device."""
        total = 0.0
        for value, lies in zip(self.graph.operands(considered.name), strategy.operands, strict=True):
            if self.graph.node(value.node).op == "Const":
                base = lies.base if isinstance(lies, Windowed) else lies
                divided = () if base is None else [axis for axes in base.dims for axis in axes]
                share = math.prod(self.mesh.axis(axis).size for axis in divided)
                total += self.costs.bytes(self.graph.type_of(value), self.module.sizes) / share
        return total

    def _matrix(self, producer: int, consumer: int, values: list[tuple[int, int, TensorType]]) -> Vector:
        left, right = self.considered[producer].strategies, self.considered[consumer].strategies
        found = [
            self.reshards.matrix(type_.with_sharding(None), tuple(s.results[port] for s in left), tuple(s.operands[slot] for s in right))
            for port, slot, type_ in values
        ]
        return found[0] if len(found) == 1 else sum(found[1:], found[0])

    def _annotate(self, solution: Solution) -> None:
        for considered, pick in zip(self.considered, solution.choice, strict=True):
            strategy = considered.strategies[pick]
            if strategy.assignment is None or not self.context.spend():
                continue
            node = self.graph.node(considered.name)
            self.graph.set_attrs(node.name, {**node.attrs, ATTRIBUTE: attribute(strategy.assignment)})
            self.graph.set_types(node.name, [t.with_sharding(s) for t, s in zip(node.types, strategy.results, strict=True)])
            self.context.change(node.name, f"{node.op}: {strategy.label}")

    def _report(self, entry: str, problem: Problem, solution: Solution) -> None:
        plan = self.context.services.get(SplitPlan)
        if not isinstance(plan, SplitPlan):
            return
        plan.solutions[entry] = solution
        around: list[Vector] = [np.zeros(len(c)) for c in problem.costs]
        for i, j, matrix in problem.edges:
            around[i] = around[i] + matrix[:, solution.choice[j]]
            around[j] = around[j] + matrix[solution.choice[i], :]
        for k, considered in enumerate(self.considered):
            node = self.graph.node(considered.name)
            if node.op != INPUT:
                plan.decisions.append(_decision(entry, node, self.candidates()[k], around[k], solution.choice[k]))


def _decision(entry: str, node: Node, considered: Candidate, around: Vector, pick: int) -> Decision:
    possible = [(n, o) for n, o in enumerate(considered.options) if around[n] < FORBIDDEN]
    listed = tuple(Alternative(o.label, o.seconds, float(around[n]), o.weight_bytes) for n, o in possible)
    return Decision(entry, node.name, node.op, node.origin, considered.labels[pick], listed, considered.refusal)
