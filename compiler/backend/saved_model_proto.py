"""A written SavedModel made the same each time: functions renamed by structure, maps in order, a fingerprint of the content alone.

__inference_entry_serving_default_1234  =>  __inference_entry_serving_default_0

TensorFlow numbers functions by a counter of its process, serializes maps in memory's order and signs with a random id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from tensorflow.core.protobuf import config_pb2, fingerprint_pb2, saved_model_pb2
from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

_NUMBERED = re.compile(r"(?P<base>.+)_(?P<number>\d+)")


def canonicalize(directory: Path) -> None:
    """Rewrites `saved_model.pb` and `fingerprint.pb` in place."""
    file = directory / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for meta_graph in saved.meta_graphs:
        _rename(meta_graph, _canonical_names(meta_graph))
        _settle(meta_graph)
    file.write_bytes(saved.SerializeToString(deterministic=True))
    _sign(directory, saved)


def _canonical_names(meta_graph: Any) -> dict[str, str]:
    """Numbered function names counted from 0 in the order of their old numbers, which is the order they were made in."""
    names = [function.signature.name for function in meta_graph.graph_def.library.function]
    numbered = [(m["base"], int(m["number"]), name) for name in names if name.startswith("__") and (m := _NUMBERED.fullmatch(name))]
    counts: dict[str, int] = {}
    found: dict[str, str] = {}
    for base, _, name in sorted(numbered):
        found[name] = f"{base}_{counts.setdefault(base, 0)}"
        counts[base] += 1
    return found


def _rename(message: Message, names: dict[str, str]) -> None:
    """Every string that is a function's name, map keys included; constants are not looked into."""
    waiting = [message]
    while waiting:
        item = waiting.pop()
        for descriptor, value in item.ListFields():
            if descriptor.full_name == "tensorflow.AttrValue.tensor":
                continue
            if _is_map(descriptor):
                waiting += _rename_map(descriptor, value, names)
            elif descriptor.message_type is not None:
                waiting += list(value) if descriptor.is_repeated else [value]
            elif descriptor.cpp_type == descriptor.CPPTYPE_STRING and descriptor.type == descriptor.TYPE_STRING:
                _rename_strings(item, descriptor, value, names)


def _is_map(descriptor: Any) -> bool:
    return descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry


def _rename_map(descriptor: Any, value: Any, names: dict[str, str]) -> Iterator[Message]:
    holds_messages = descriptor.message_type.fields_by_name["value"].message_type is not None
    for key in [key for key in value if key in names]:
        if holds_messages:
            value[names[key]].CopyFrom(value[key])
        else:
            value[names[key]] = value[key]
        del value[key]
    if holds_messages:
        yield from value.values()
    elif descriptor.message_type.fields_by_name["value"].type == descriptor.TYPE_STRING:
        for key in [key for key in value if value[key] in names]:
            value[key] = names[value[key]]


def _rename_strings(item: Message, descriptor: Any, value: Any, names: dict[str, str]) -> None:
    if descriptor.is_repeated:
        for position, text in enumerate(value):
            value[position] = names.get(text, text)
    elif value in names:
        setattr(item, descriptor.name, names[value])


def _settle(meta_graph: Any) -> None:
    """What depends on the process that wrote it: the library's order, its own task in devices, the configuration on TensorFlow's calls."""
    functions = sorted(meta_graph.graph_def.library.function, key=lambda function: function.signature.name)
    del meta_graph.graph_def.library.function[:]
    meta_graph.graph_def.library.function.extend(functions)
    for node in [*meta_graph.graph_def.node, *(node for function in meta_graph.graph_def.library.function for node in function.node_def)]:
        node.device = _without_task(node.device)
        if node.op == "HashTableV2" and node.attr["shared_name"].s:
            node.attr["use_node_name_sharing"].b = True  # else each node of the name becomes a table of its own when it is loaded
        if "config_proto" in node.attr and node.attr["config_proto"].s:
            config = config_pb2.ConfigProto.FromString(node.attr["config_proto"].s)
            config.ClearField("device_count")
            node.attr["config_proto"].s = config.SerializeToString(deterministic=True)
    for item in meta_graph.object_graph_def.nodes:
        if item.HasField("variable"):
            item.variable.device = _without_task(item.variable.device)


def _without_task(device: str) -> str:
    parts = [part for part in device.split("/") if part and not part.startswith(("job:localhost", "replica:", "task:"))]
    return "".join(f"/{part}" for part in parts)


def _sign(directory: Path, saved: Any) -> None:
    """The fingerprint of what now lies there; its id follows from it. TensorFlow's hash of the object graph differs from call to call."""
    (directory / "fingerprint.pb").unlink(missing_ok=True)
    found = fingerprint_pb2.FingerprintDef.FromString(fingerprinting.CreateFingerprintDef(str(directory)))
    found.saved_object_graph_hash = _number(saved.meta_graphs[0].object_graph_def, 8)
    found.uuid = ""
    found.uuid = str(_number(found, 16))
    (directory / "fingerprint.pb").write_bytes(found.SerializeToString(deterministic=True))


def _number(message: Message, size: int) -> int:
    return int.from_bytes(hashlib.sha256(message.SerializeToString(deterministic=True)).digest()[:size], "little")


def sign(directory: Path, digest: str) -> None:
    """The fingerprint of a file whose weights were filled in: TensorFlow's own hash would have to read them all."""
    file = directory / "fingerprint.pb"
    found = fingerprint_pb2.FingerprintDef.FromString(file.read_bytes())
    found.saved_model_checksum = int(digest[:16], 16)
    found.uuid = str(int(digest[:32], 16))
    file.write_bytes(found.SerializeToString(deterministic=True))
