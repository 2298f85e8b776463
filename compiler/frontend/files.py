"""Models that touch files or the network are refused unless allowed: compiling and validating run them."""

from __future__ import annotations

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ops.registry import spec
from compiler.ops.spec import Trait

TOUCHING = frozenset({
    "BigQueryReader", "CacheDataset", "CacheDatasetV2", "CreateSummaryDbWriter", "CreateSummaryFileWriter", "DebugIdentity",
    "DebugIdentityV2", "DebugNanCount", "DebugNumericSummary", "EagerPyFunc", "FileSystemSetConfiguration", "FixedLengthRecordDataset",
    "FixedLengthRecordReader", "FixedLengthRecordReaderV2", "ImportEvent", "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2", "LMDBReader", "LoadDataset", "MatchingFiles", "MergeV2Checkpoints", "PrintV2", "PyFunc",
    "PyFuncStateless", "ReadFile", "Restore", "RestoreSlice", "RestoreV2", "RpcCall", "RpcClient", "Save", "SaveDataset",
    "SaveDatasetV2", "SaveSlices", "SaveV2", "SnapshotDataset", "SnapshotDatasetV2", "SqlDataset", "TFRecordDataset",
    "TFRecordDatasetV2", "TFRecordReader", "TFRecordReaderV2", "TextLineDataset", "TextLineReader", "TextLineReaderV2",
    "WholeFileReader", "WholeFileReaderV2", "WriteFile", "WriteGraphSummary", "WriteSummary",
})  # fmt: skip
"""Op names, because this is a question of trust and not of meaning.  `PrintV2` writes to a file when its `output_stream` names one."""


def refuse_files(module: Module, allowed: bool, where: str) -> None:
    """CleaveError names the first such node of any graph of the module."""
    if allowed:
        return
    for graph in module.graphs.values():
        for node in graph:
            known = spec(node.op)
            if node.op == "PrintV2" and not str(node.attrs.get("output_stream", "stderr")).startswith("file://"):
                continue
            if node.op in TOUCHING or (known is not None and known.has(Trait.FILE)):
                what = f"{node.op} {node.name!r} reads or writes files or runs Python"
                raise CleaveError(f"{where}: {what}, and compiling runs the model; allow it with --allow-files if you trust it")
