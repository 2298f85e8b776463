"""Golden tests: `fixtures/passes/<pass>/<case>.ir` holds a cluster, a pass and a module; `<case>.after.ir` what comes out, whole."""

from __future__ import annotations

from pathlib import Path

from compiler.ir.module import Module
from compiler.ir.text import parse_document, print_document
from compiler.ir.verify import verify
from compiler.pipeline.base import Context, Pass
from cost_model.cluster import Cluster
from passes.place.place import Place
from passes.place.serialise import Serialise
from passes.reorder.memory import ReorderMemory
from passes.reorder.ranks import ReorderRanks

ROOT = Path("fixtures/passes")
CLASSES: tuple[type[Pass], ...] = (ReorderRanks, ReorderMemory, Place, Serialise)
CASES = [path for name in ("reorder", "place", "serialise") for path in sorted((ROOT / name).glob("*.ir")) if ".after." not in path.name]


def load(path: Path) -> tuple[str, Pass, Module, Context]:
    """(pipeline, the pass it names, the module, a context with the cluster of the first line)."""
    text = path.read_text(encoding="utf-8")
    cluster = Cluster.parse(text.splitlines()[0].removeprefix("# cluster: "))
    pipeline, module = parse_document(text)
    (kind,) = (c for c in CLASSES if c.name == pipeline)
    return kind.name, kind(), module, Context(services={Cluster: cluster}, pass_name=kind.name)


def run(path: Path, fuel: int | None = None) -> tuple[Module, Context]:
    """The module after the pass, verified."""
    _, pass_, module, context = load(path)
    context.fuel = fuel
    pass_.run(module, context)
    module.facts = (module.facts | pass_.establishes) - pass_.breaks
    verify(module)
    return module, context


def after_path(path: Path) -> Path:
    return path.with_name(path.name.replace(".ir", ".after.ir"))


def golden_text(path: Path) -> str:
    """What `<case>.after.ir` has to say."""
    return print_document(None, run(path)[0])


if __name__ == "__main__":
    for case in CASES:
        after_path(case).write_text(golden_text(case), encoding="utf-8")
