"""Commands that look: `inspect`, `diff`, `passes`, `ops`."""

from __future__ import annotations

import sys
from collections import Counter

import click

from compiler.commands import options
from compiler.ir.errors import CleaveError


@click.command()
@click.argument("model")
@click.option("--ir", "as_ir", is_flag=True, help="print the IR")
@click.option("--dot", "as_dot", is_flag=True, help="print a Graphviz drawing")
@options.as_json
@options.signature
@options.allow_files
def inspect(model: str, as_ir: bool, as_dot: bool, as_json: bool, signature: str | None, allow_files: bool) -> None:
    """Summarise MODEL: signatures, sizes, operators."""
    from compiler.driver.compare import side_of
    from compiler.ir.dot import to_dot
    from compiler.ir.text import print_module

    with options.progress(f"reading {model}"):
        module = side_of(model, allow_files).source.module
    if signature is not None and signature not in module.entries:
        raise CleaveError(f"{model} has no signature {signature!r}, expected one of {sorted(module.entries)}")
    if as_ir:
        click.echo(print_module(module), nl=False)
        return
    if as_dot:
        click.echo(to_dot(module, signature), nl=False)
        return
    entries = {key: graph for key, graph in module.entries.items() if signature in (None, key)}
    data = {
        key: {
            "inputs": {name: str(graph.node(name).type) for name in graph.inputs},
            "outputs": {o.name: str(graph.type_of(o.value)) for o in graph.outputs},
            "nodes": len(graph),
            "operators": dict(Counter(node.op for node in graph).most_common()),
        }
        for key, graph in entries.items()
    }
    variables = {v.name: str(v.type) for v in module.variables.values()}
    if as_json:
        options.print_json({"entries": data, "functions": len(module.functions), "variables": variables})
        return
    out = options.console()
    for key, entry in data.items():
        out.print(f"{key}: {entry['nodes']} nodes")
        for what in ("inputs", "outputs"):
            for name, type_ in dict(entry[what]).items():  # type: ignore[call-overload]
                out.print(f"  {what[:-1]:<7} {name}: {type_}")
    inner = Counter(node.op for graph in module.functions.values() for node in graph)
    total = inner + Counter(node.op for graph in entries.values() for node in graph)
    out.print(f"{len(module.functions)} functions, {len(variables)} variables, {len(module.resources)} other resources")
    out.print(options.table("Operators", ["op", "count"], total.most_common(25)))


@click.command()
@click.argument("a")
@click.argument("b")
@options.allow_files
@options.as_json
def diff(a: str, b: str, allow_files: bool, as_json: bool) -> int:
    """Say in words how two modules differ; exit status 1 if they do."""
    from compiler.driver.compare import side_of
    from compiler.ir.diff import diff as differences

    with options.progress(f"comparing {a} and {b}"):
        found = list(differences(side_of(a, allow_files).source.module, side_of(b, allow_files).source.module))
    if as_json:
        options.print_json(found)
    else:
        click.echo("".join(f"{line}\n" for line in found), nl=False)
    return 1 if found else 0


@click.command()
@options.as_json
def passes(as_json: bool) -> None:
    """List the passes, their options and the default order."""
    from compiler.pipeline.text import options_of
    from passes import PASSES
    from passes.pipelines import PIPELINES

    found = [(name, cls.numerics.value, options_of(cls), _what_it_does(cls)) for name, cls in PASSES.items()]
    if as_json:
        rows = [{"name": n, "numerics": level, "options": given, "does": does} for n, level, given, does in found]
        options.print_json({"passes": rows, "pipelines": dict(PIPELINES)})
        return
    out = options.console()
    cells = [(n, level, ", ".join(f"{k}={v}" for k, v in given.items()), does) for n, level, given, does in found]
    out.print(options.table("Passes", ["pass", "numerics", "options", "does"], cells))
    for name, text in PIPELINES.items():
        out.print(f"\n{name}: {text}")


def _what_it_does(cls: type) -> str:
    """A pass is a file, and the file's first line is the fact."""
    return (sys.modules[cls.__module__].__doc__ or "").strip().partition("\n")[0]


@click.command()
@options.as_json
def ops(as_json: bool) -> None:
    """List the operators the compiler understands, and how each can be split."""
    from compiler.ops.registry import coverage_table

    rows = coverage_table()
    columns = ["op", "family", "rule", "content", "flops", "localize", "double"]
    if as_json:
        options.print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    marked = [[("yes" if cell is True else "-" if cell is False else cell) for cell in row] for row in rows]
    options.console().print(options.table(f"Operators ({len(rows)})", columns, marked))


COMMANDS = (inspect, diff, passes, ops)
