"""Mutation testing by sample: one small change at a time in a copy of the sources; do the tests that matter notice?

    python -m tests.tools.mutate --count 40 --seed 0 [--only passes/fuse]

A change: another comparison, arithmetic or boolean operator, a number one off, a truth value turned, a condition negated, a statement left
out.  Texts, annotations and what only words an error are left alone.  Each mutant runs in a fork of a process that has imported the
libraries and none of the project, so that a mutant costs little more than its tests; the quick tests go first, those that execute kernels
only see what survives them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("compiler/ops", "compiler/rewrite", "passes")
QUICK = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--timeout", "300")
UNIT = (*QUICK, "-m", "not tf and not system")
NUMERIC = (*QUICK, "-m", "tf and not system")
STAGES: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("compiler/ops", ((*UNIT, "tests/ops", "tests/passes/test_split.py"), (*NUMERIC, "tests/ops"))),
    ("compiler/rewrite", ((*UNIT, "tests/rewrite", "tests/passes/test_rewrites.py"), (*NUMERIC, "tests/passes/test_rewrites.py"))),
    ("passes/canonicalize", ((*UNIT, "tests/passes", "-k", "not split"), (*NUMERIC, "tests/passes", "-k", "not split"))),
    ("passes/fuse", ((*UNIT, "tests/passes", "-k", "not split"), (*NUMERIC, "tests/passes", "-k", "not split"))),
    ("passes/split", ((*UNIT, "tests/passes", "-k", "split or wish or outline"), (*NUMERIC, "tests/passes", "-k", "split or outline"))),
    ("passes", ((*UNIT, "tests/passes", "-k", "not split"), (*NUMERIC, "tests/passes", "-k", "not split"))),
)
LAWS = (*NUMERIC, "tests/properties/test_laws.py", "-k", "default or any_order or outlining")
"""What every pass's mutant sees in the end."""
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
               ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
              ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}  # fmt: skip
SPOKEN = {"refuse", "change", "misfit", "Refusal", "IrError", "CleaveError", "Fault"}
"""Calls that only say something."""


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


class Sites(ast.NodeVisitor):
    """Every place of a tree that can be changed, with what it becomes."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, str, ast.AST | None]] = []

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.AnnAssign):
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                self.visit(node.value)
            return
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in SPOKEN:
            return
        self.found += [(node, what, new) for what, new in changes(node)]
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "type_comment"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.visit(child)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and len(new.ops) == 1 and type(new.ops[0]) in COMPARISONS:
        new.ops = [COMPARISONS[type(new.ops[0])]()]
        yield "comparison", new
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        yield "and/or", new
    elif isinstance(new, ast.BinOp) and type(new.op) in ARITHMETIC:
        new.op = ARITHMETIC[type(new.op)]()
        yield "arithmetic", new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        yield "not left out", new.operand
    elif isinstance(new, ast.If | ast.IfExp):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield "condition negated", new
    elif isinstance(new, ast.Constant) and type(new.value) is bool:
        yield "truth value", ast.Constant(not new.value)
    elif isinstance(new, ast.Constant) and type(new.value) is int:
        yield "number", ast.Constant(new.value + 1)
    elif isinstance(new, ast.Expr) and isinstance(new.value, ast.Call):
        yield "statement left out", ast.Pass()
    elif isinstance(new, ast.Continue):
        yield "continue is break", ast.Break()


class Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST | None) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST | None:
        return self.new if node is self.old else self.generic_visit(node)


def mutant(file: Path, site: int) -> Mutant:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    old, what, new = _sites(tree)[site]
    before = ast.unparse(old).splitlines()[0][:90]
    changed = ast.unparse(ast.fix_missing_locations(Replace(old, new).visit(tree)))
    after = "" if new is None else ast.unparse(ast.fix_missing_locations(new)).splitlines()[0][:90]
    return Mutant(file.relative_to(ROOT).as_posix(), getattr(old, "lineno", 0), f"{what}: {before}  =>  {after}", changed)


def _sites(tree: ast.AST) -> list[tuple[ast.AST, str, ast.AST | None]]:
    sites = Sites()
    sites.visit(tree)
    return sites.found


def sample(count: int, seed: int, only: str) -> list[Mutant]:
    """Every change that is possible is equally likely."""
    files = [f for room in ROOMS for f in sorted((ROOT / room).rglob("*.py")) if f.relative_to(ROOT).as_posix().startswith(only)]
    sites = [(f, i) for f in files for i in range(len(_sites(ast.parse(f.read_text(encoding="utf-8")))))]
    return [mutant(file, i) for file, i in random.Random(seed).sample(sites, min(count, len(sites)))]


def stages(file: str) -> tuple[tuple[str, ...], ...]:
    found = next(stages for prefix, stages in STAGES if file.startswith(prefix))
    return (*found, LAWS) if file.startswith("passes") else found


def survives(copy_: Path, mutant: Mutant, most_seconds: float) -> bool:
    target = copy_ / mutant.file
    original = target.read_text(encoding="utf-8")
    target.write_text(mutant.text, encoding="utf-8")
    try:
        return all(_passes(copy_, stage, most_seconds) for stage in stages(mutant.file))
    finally:
        target.write_text(original, encoding="utf-8")


def _passes(copy_: Path, arguments: tuple[str, ...], most_seconds: float) -> bool:
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(_pytest(copy_, arguments))
    deadline = time.monotonic() + most_seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) in (0, 5)
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _pytest(copy_: Path, arguments: tuple[str, ...]) -> int:
    import pytest

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1), os.dup2(null, 2)
    os.chdir(copy_)
    sys.path[:] = [str(copy_), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
    for name in [n for n in sys.modules if n.split(".")[0] == "tests"]:
        del sys.modules[name]  # this file's own package, which is not the copy's
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = str(copy_)
    return int(pytest.main([*arguments, "--rootdir", str(copy_)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=400.0, help="a stage that takes longer has noticed")
    options = parser.parse_args()
    import hypothesis  # noqa: F401 - imported once, for every fork
    import networkx  # noqa: F401
    import pytest  # noqa: F401
    import scipy.optimize  # noqa: F401
    import tensorflow  # noqa: F401

    assert not any(name.split(".")[0] in ("compiler", "passes", "cost_model") for name in sys.modules), "forks import the mutant"
    survivors, chosen = [], sample(options.count, options.seed, options.only)
    with tempfile.TemporaryDirectory(prefix="cleave-mutants-") as directory:
        copy_ = Path(directory)
        for room in ("compiler", "passes", "cost_model", "tests", "fixtures", "benchmarks", "examples"):
            shutil.copytree(ROOT / room, copy_ / room, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy_)
        for stage in sorted({stages(mutant.file)[0] for mutant in chosen}):
            assert _passes(copy_, stage, options.seconds), f"fails without a mutant: pytest {' '.join(stage)}"
        for k, mutant in enumerate(chosen, 1):
            began = time.monotonic()
            alive = survives(copy_, mutant, options.seconds)
            survivors += [mutant] if alive else []
            print(f"{k}/{len(chosen)} {'SURVIVED' if alive else 'killed'} {time.monotonic() - began:.0f} s  {mutant}", flush=True)
    killed = len(chosen) - len(survivors)
    print(f"killed {killed} of {len(chosen)} ({killed / len(chosen):.0%})")
    for mutant in survivors:
        print(f"survived: {mutant}")


if __name__ == "__main__":
    main()
