"""A module and its file: `model.ir`, with `model.weights` beside it for the constants that passes computed.

Both are written under a temporary name and renamed, so a reader never sees half a file.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from compiler.ir.errors import IrError
from compiler.ir.graph import Attr, Graph
from compiler.ir.module import Module
from compiler.ir.text_parse import parse_document
from compiler.ir.text_print import print_document
from compiler.ir.weights import Stores, WeightRef

Pack: TypeAlias = Literal["nothing", "scratch", "everything"]
"""Which weights are written beside the text: none, the computed ones (the others stay where they are), or all."""

_CHUNK_BYTES = 1 << 24


def read_module(path: Path | str) -> Module:
    """The module of an `.ir` file; the paths of its stores are relative to the file."""
    return read_document(path)[1]


def read_document(path: Path | str) -> tuple[str | None, Module]:
    """(pipeline or None, module) of an `.ir` file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise IrError(f"cannot read {path}: {error}, expected an .ir file") from None
    pipeline, module = parse_document(text, path.parent, source=path.name)
    _hold(module.stores, path.with_suffix(".weights"))
    return pipeline, module


def _hold(stores: Stores, side: Path) -> None:
    """Writing a module again replaces the file beside it, which modules read before still refer to."""
    for name, file in stores.files.items():
        if file.absolute() == side.absolute() and stores.size(name):
            stores.hold(name)


def write_module(module: Module, path: Path | str, *, pipeline: str | None = None, pack: Pack = "scratch") -> None:
    """Write the text, and the weights `pack` asks for into `<stem>.weights` beside it; the module itself is left as it is."""
    path = Path(path)
    if pack != "nothing":
        module = _packed(module, path.with_suffix(".weights"), pack)
    text = print_document(pipeline, module, path.parent)
    _replace(path, lambda file: file.write(text.encode()))


def _packed(module: Module, side: Path, pack: Pack) -> Module:
    """A copy whose packed references point into `side`, which is written."""
    moved = _to_move(module, side, pack)
    references = sorted({_whole(ref) for ref in _references(module) if ref.store in moved}, key=_reference_key)
    if not references:
        return module
    stores = Stores({name: file for name, file in module.stores.files.items() if name not in moved})
    name = stores.free_name(Stores.SCRATCH)
    places = _layout(references, name)
    _hold(module.stores, side)
    _replace(side, lambda file: _copy(file, module.stores, places))
    stores.add(name, side)
    twin = module.copy()
    twin.stores = stores
    _rewrite(twin, places)
    return twin


def _to_move(module: Module, side: Path, pack: Pack) -> frozenset[str]:
    """The scratch store always, and whatever lives in the file that is about to be replaced."""
    files = module.stores.files
    if pack == "everything":
        return frozenset(files)
    return frozenset(name for name, file in files.items() if name == module.stores.scratch or file.absolute() == side.absolute())


def _whole(reference: WeightRef) -> WeightRef:
    return replace(reference, region=None)


def _reference_key(reference: WeightRef) -> tuple[str, int, str, tuple[int, ...]]:
    return (reference.store, reference.offset, str(reference.dtype), reference.full_shape)


def _layout(references: Iterable[WeightRef], store: str) -> dict[WeightRef, WeightRef]:
    """Where each tensor goes: in the order they stood, each at a multiple of 64 bytes."""
    places: dict[WeightRef, WeightRef] = {}
    end = 0
    for reference in references:
        places[reference] = replace(reference, store=store, offset=-(-end // 64) * 64)
        end = places[reference].offset + reference.nbytes
    return places


def _copy(file: BinaryIO, stores: Stores, places: dict[WeightRef, WeightRef]) -> None:
    for source, target in places.items():
        file.seek(target.offset)
        left = math.prod(source.shape) * source.dtype.bits // 8
        with stores.files[source.store].open("rb") as store:
            store.seek(source.offset)
            while left:
                chunk = store.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise IrError(f"store {source.store!r} ends before the weight of shape {source.shape} at {source.offset} does")
                file.write(chunk)
                left -= len(chunk)


def _references(module: Module) -> Iterator[WeightRef]:
    for variable in module.variables.values():
        yield from _in_attr(variable.initial) if variable.initial is not None else ()
    for graph in module.graphs.values():
        for node in graph:
            for attr in node.attrs.values():
                yield from _in_attr(attr)


def _in_attr(attr: Attr) -> Iterator[WeightRef]:
    if isinstance(attr, WeightRef):
        yield attr
    elif isinstance(attr, tuple):
        for item in attr:
            yield from _in_attr(item)


def _rewrite(module: Module, places: dict[WeightRef, WeightRef]) -> None:
    for name, variable in module.variables.items():
        if isinstance(variable.initial, WeightRef):
            module.variables[name] = replace(variable, initial=_moved_reference(variable.initial, places))
    for graph in module.graphs.values():
        _rewrite_graph(graph, places)


def _rewrite_graph(graph: Graph, places: dict[WeightRef, WeightRef]) -> None:
    for node in graph:
        if any(True for attr in node.attrs.values() for _ in _in_attr(attr)):
            graph.set_attrs(node.name, {key: _moved(attr, places) for key, attr in node.attrs.items()})


def _moved(attr: Attr, places: dict[WeightRef, WeightRef]) -> Attr:
    if isinstance(attr, tuple):
        return tuple(_moved(item, places) for item in attr)
    return _moved_reference(attr, places) if isinstance(attr, WeightRef) else attr


def _moved_reference(reference: WeightRef, places: dict[WeightRef, WeightRef]) -> WeightRef:
    place = places.get(_whole(reference))
    return reference if place is None else replace(place, region=reference.region)


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a sibling, then rename it over `path`."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
