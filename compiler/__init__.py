"""cleave: an operator-level parallelising compiler for TensorFlow.

    import compiler
    compiled = compiler.compile_model("path/to/saved_model", cluster="cpu:2")
    compiled.save("out")

The functions below import TensorFlow when they are called, not before.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_EXPORTS = {
    "load": "compiler.frontend.source",
    "SourceModel": "compiler.frontend.source",
    "compile_model": "compiler.driver.compile",
    "Compiled": "compiler.driver.compile",
    "plan": "compiler.driver.compile",
    "validate": "compiler.driver.compare",
    "Plan": "compiler.driver.plan",
    "Report": "compiler.driver.report",
    "Verdict": "compiler.validate.verdict",
    "Cluster": "cost_model.cluster",
    "CleaveError": "compiler.ir.errors",
}

__all__ = ["CleaveError", "Cluster", "Compiled", "Plan", "Report", "SourceModel", "Verdict", "compile_model", "load", "plan", "validate"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'compiler' has no attribute {name!r}, it has {', '.join(__all__)}")
    return getattr(import_module(_EXPORTS[name]), name)
