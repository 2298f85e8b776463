"""Models that touch files, the network or Python are refused unless allowed: compiling and validating run them, loading runs their setup.

A table filled from one of the model's own assets is what setup is for; a table filled from any other file is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from compiler.frontend.graphdef import CALLS, reached
from compiler.frontend.objects import setup_functions
from compiler.frontend.references import graph_reference
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ops.registry import spec
from compiler.ops.spec import Trait

TOUCHING = frozenset({
    "BigQueryReader", "CSVDataset", "CSVDatasetV2", "CacheDataset", "CacheDatasetV2", "CalibrationStatisticsSaver",
    "CreateSummaryDbWriter", "CreateSummaryFileWriter", "DTensorRestoreV2", "DataServiceDataset", "DataServiceDatasetV2",
    "DataServiceDatasetV3", "DataServiceDatasetV4", "DatasetToTFRecord", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3",
    "DebugNanCount", "DebugNumericSummary", "DistributedSave", "DumpTensor", "EagerPyFunc", "ExperimentalCSVDataset",
    "ExperimentalDatasetToTFRecord", "ExperimentalLMDBDataset", "ExperimentalMatchingFilesDataset", "ExperimentalSqlDataset",
    "FileSystemSetConfiguration", "FixedLengthRecordDataset", "FixedLengthRecordDatasetV2", "FixedLengthRecordReader",
    "FixedLengthRecordReaderV2", "FixedUnigramCandidateSampler", "GenerateBigQueryReaderPartitions", "GenerateVocabRemapping",
    "GeneratorDataset", "ImportEvent", "InitializeTableFromTextFile", "InitializeTableFromTextFileV2", "LMDBDataset", "LMDBReader",
    "ListSnapshotChunksDataset", "LoadAndRemapMatrix", "LoadDataset", "MatchingFiles", "MatchingFilesDataset", "MergeV2Checkpoints",
    "PrintV2", "PyFunc", "PyFuncStateless", "ReadFile", "RecordInput", "RegisterDataset", "RegisterDatasetV2",
    "Restore", "RestoreSlice", "RestoreV2", "RpcCall", "RpcClient", "RpcServer", "RpcServerStart", "Save", "SaveDataset",
    "SaveDatasetV2", "SaveSlices", "SaveV2", "Skipgram", "SnapshotChunkDataset", "SnapshotDataset", "SnapshotDatasetReader",
    "SnapshotDatasetV2", "SqlDataset", "TFRecordDataset", "TFRecordDatasetV2", "TFRecordReader", "TFRecordReaderV2", "TextLineDataset",
    "TextLineReader", "TextLineReaderV2", "WholeFileReader", "WholeFileReaderV2", "WriteAudioSummary", "WriteFile", "WriteGraphSummary",
    "WriteHistogramSummary", "WriteImageSummary", "WriteRawProtoSummary", "WriteScalarSummary", "WriteSummary",
})  # fmt: skip
"""Op names, because this is a question of trust and not of meaning.  `PrintV2` writes to a file when its `output_stream` names one."""

_FROM_ASSET = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")


def refuse_files(module: Module, allowed: bool, where: str) -> None:
    """CleaveError names the first node of any graph of the module that touches what it should not."""
    if allowed:
        return
    for graph in module.graphs.values():
        for node in graph:
            if touches(node.op, str(node.attrs.get("output_stream", ""))):
                raise _refusal(where, node.op, node.name, "compiling runs the model")


def touches(op: str, output_stream: str = "") -> bool:
    """Does the op read or write files, use the network or call Python?"""
    if op == "PrintV2":
        return output_stream.startswith("file://")
    known = spec(op)
    return op in TOUCHING or (known is not None and known.has(Trait.FILE))


def _refusal(where: str, op: str, name: str, why: str) -> CleaveError:
    what = f"{op} {name!r} touches files, the network or Python"
    return CleaveError(f"{where}: {what}, and {why}; allow it with --allow-files if you trust it")


def refuse_setup_files(
    meta: meta_graph_pb2.MetaGraphDef, library: Mapping[str, function_pb2.FunctionDef], allowed: bool, where: str
) -> None:
    """The same for what loading the original runs: the functions that make and fill its tables, and a v1 graph's initial operation."""
    if allowed:
        return
    kinds = [node.WhichOneof("kind") for node in meta.object_graph_def.nodes]
    waiting = [
        (name, frozenset(i for i, index in enumerate(bound) if 0 <= index < len(kinds) and kinds[index] == "asset"))
        for name, bound in setup_functions(meta)
    ]
    if not meta.HasField("object_graph_def"):
        assets = {graph_reference(asset.tensor_info.name, where).node for asset in _assets(meta)}
        waiting += _examine(reached(meta.graph_def, _initial(meta)), assets, library, where)
    seen = set(waiting)
    while waiting:
        name, positions = waiting.pop()
        function = library.get(name)
        if function is None:
            continue
        assets = {arg.name for i, arg in enumerate(function.signature.input_arg) if i in positions}
        found = [call for call in _examine(function.node_def, assets, library, where) if call not in seen]
        seen.update(found)
        waiting += found


def _assets(meta: meta_graph_pb2.MetaGraphDef) -> list[meta_graph_pb2.AssetFileDef]:
    """Where the paths of the model's assets stand, in the place of today or of TensorFlow 1."""
    found = list(meta.asset_file_def)
    if "saved_model_assets" in meta.collection_def:
        for packed in meta.collection_def["saved_model_assets"].any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            if packed.Unpack(asset):
                found.append(asset)
    return found


def _initial(meta: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """The operations a v1 loader runs."""
    keys = [key for key in ("saved_model_main_op", "legacy_init_op") if key in meta.collection_def]
    names = [name for key in keys for name in meta.collection_def[key].node_list.value]
    if "__saved_model_init_op" in meta.signature_def:
        names += [info.name for info in meta.signature_def["__saved_model_init_op"].outputs.values()]
    present = {node.name for node in meta.graph_def.node}
    return sorted({graph_reference(name, "initial operation").node for name in names} & present)


def _examine(
    nodes: Iterable[node_def_pb2.NodeDef], assets: set[str], library: Mapping[str, function_pb2.FunctionDef], where: str
) -> list[tuple[str, frozenset[int]]]:
    """The functions these nodes call, with the arguments that are asset paths; CleaveError for a node that touches anything else."""
    called = []
    for node in nodes:
        data = [text.split(":")[0] for text in node.input if not text.startswith("^")]
        fills = node.op in _FROM_ASSET and len(data) > 1 and data[1] in assets
        stream = node.attr["output_stream"].s.decode(errors="replace") if "output_stream" in node.attr else ""
        if touches(node.op, stream) and not fills:
            raise _refusal(where, node.op, node.name, "loading the model runs it")
        positions = frozenset(i for i, name in enumerate(data) if name in assets)
        if node.op in library:
            called.append((node.op, positions))
        for attr in node.attr.values():
            for function in (attr.func, *attr.list.func):
                called.append((function.name, positions if node.op in CALLS else frozenset()))
    return called
