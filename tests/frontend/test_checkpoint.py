"""The reader agrees with TensorFlow's on what TensorFlow writes, and damage ends in one CheckpointError."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from compiler.frontend.checkpoint import OBJECT_GRAPH, CheckpointError, _signed_code, object_graph, read_index, read_tensor
from compiler.frontend.crc32c import crc32c, unmasked

pytestmark = pytest.mark.tf

VALUES: dict[str, Any] = {
    "float": tf.reshape(tf.range(12, dtype=tf.float32), [3, 4]),
    "half": tf.constant([1.5, -2.0], tf.float16),
    "long": tf.constant([[1, -(2**62)]], tf.int64),
    "brain": tf.constant([0.5, 3.0, -1.0], tf.bfloat16),
    "bytes": tf.constant([["größe", b"\x00\xff"], ["", "x" * 300]]),
    "scalar": tf.constant(7.0, tf.float64),
    "word": tf.constant("one"),
    "flag": tf.constant([True, False]),
    "empty": tf.zeros([0, 5], tf.float32),
    "no_strings": tf.zeros([0], tf.string),
    "complex": tf.constant([1 + 2j], tf.complex64),
    "nibble": tf.cast(tf.constant([-8, 7, 3], tf.int32), tf.as_dtype("int4")),
    "tiny": tf.cast(tf.constant([0.5, 448.0]), tf.as_dtype("float8_e4m3fn")),
}
LARGE = tf.random.stateless_uniform([70_000], [1, 2])


def write(prefix: Path, names: list[str], slices: list[str], tensors: list[tf.Tensor]) -> Path:
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors)
    return prefix


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = VALUES | {"large": LARGE} | {f"many/block_{index}/weight": tf.constant([float(index)]) for index in range(300)}
    return write(tmp_path_factory.mktemp("checkpoint") / "model", list(values), [""] * len(values), list(values.values()))


def assert_reads_as_tensorflow(prefix: Path) -> None:
    reference = tf.train.load_checkpoint(str(prefix))
    entries = read_index(prefix)
    assert set(entries) == set(reference.get_variable_to_shape_map())
    for name, entry in entries.items():
        expected = np.asarray(reference.get_tensor(name), object if entry.dtype == "string" else None)
        actual = read_tensor(entry, verify=True)
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), name
        assert entry.shape == expected.shape
        assert np.array_equal(actual, expected), name


def test_agrees_with_tensorflow(prefix: Path) -> None:
    assert_reads_as_tensorflow(prefix)


def test_numbers_are_mapped_and_cannot_be_written_to(prefix: Path) -> None:
    entry = read_index(prefix)["large"]
    tensor = read_tensor(entry)
    assert not tensor.flags.owndata and not tensor.flags.writeable
    with entry.shard_file.open("rb") as file:
        file.seek(entry.offset)
        assert file.read(entry.nbytes) == tensor.tobytes()


def test_entries_are_in_order_and_there_is_no_object_graph_among_names(prefix: Path) -> None:
    entries = read_index(prefix)
    assert list(entries) == sorted(entries)
    assert object_graph(entries) is None


def test_reads_the_object_graph_and_several_shards(tmp_path: Path) -> None:
    module = tf.Module()
    module.w = tf.Variable([[1.0, 2.0]], name="weight")
    prefix = Path(tf.train.Checkpoint(model=module).write(str(tmp_path / "checkpoint")))
    entries = read_index(prefix)
    graph = object_graph(entries)
    assert graph is not None
    keys = {attribute.full_name: attribute.checkpoint_key for node in graph.nodes for attribute in node.attributes}
    assert read_tensor(entries[keys["weight"]]).tolist() == [[1.0, 2.0]]
    assert entries[OBJECT_GRAPH].dtype == "string"


def test_assembles_slices_from_several_files(tmp_path: Path) -> None:
    """A 300 x 5 variable saved by three writers, in rows, then merged; numbers past 64 take two bytes in a slice's key."""
    whole = tf.reshape(tf.range(1500, dtype=tf.float32), [300, 5])
    strings = tf.strings.as_string(whole)
    pieces = [(0, 60, "-"), (60, 240, "0,2"), (60, 240, "2,3")]
    prefixes = []
    for index, (start, rows, columns) in enumerate(pieces):
        first, count = (0, 5) if columns == "-" else map(int, columns.split(","))
        spec = f"300 5 {start},{rows}:{columns}"
        where = (slice(start, start + rows), slice(first, first + count))
        names = ["a\x00b", "strings"]
        prefixes.append(str(write(tmp_path / f"part{index}", names, [spec, spec], [whole[where], strings[where]])))
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=str(tmp_path / "model"))
    entries = read_index(tmp_path / "model")
    assert len({part.entry.shard_file for part in entries["strings"].slices}) == 3
    assert np.array_equal(read_tensor(entries["a\x00b"], verify=True), whole.numpy())
    assert np.array_equal(read_tensor(entries["strings"]), strings.numpy())  # TensorFlow's own reader refuses sliced strings
    assert np.array_equal(read_tensor(entries["a\x00b"]), tf.train.load_checkpoint(str(tmp_path / "model")).get_tensor("a\x00b"))


def test_numbers_in_a_slices_key() -> None:
    """tensorflow/core/lib/strings/ordered_code: -1, 0 and 63 take a byte, 64 and -65 take two."""
    codes = {number: _signed_code(number).hex() for number in (-65, -64, -1, 0, 63, 64, 8191, 8192, 1 << 62)}
    assert codes[-1] == "7f" and codes[0] == "80" and codes[63] == "bf" and codes[-64] == "40"
    assert codes[64] == "c040" and codes[-65] == "3fbf" and codes[8191] == "dfff" and codes[8192] == "e02000"
    assert codes[1 << 62] == "ffc0" + "40" + "00" * 7 or len(codes[1 << 62]) == 18
    assert [codes[number] for number in sorted(codes)] == sorted(codes.values())


@pytest.mark.parametrize("size", [0, 1, 9, 127, 128, 129, 1000, 65_537, (1 << 22) + 300])
def test_crc32c_is_the_plain_one(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == plain_crc32c(data)


def plain_crc32c(data: bytes) -> int:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def test_crc32c_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert unmasked(((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF) == 0xE3069283


def read_everything(prefix: Path) -> None:
    entries = read_index(prefix)
    object_graph(entries)
    for entry in entries.values():
        read_tensor(entry, verify=True)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    prefix = write(tmp_path / "model", ["b", "a"], ["4 0,2", ""], [tf.constant([1.0, 2.0]), tf.constant(["xy", "z"])])
    rest = write(tmp_path / "rest", ["b"], ["4 2,2"], [tf.constant([3.0, 4.0])])
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[str(prefix), str(rest)], destination_prefix=str(tmp_path / "all"))
    read_everything(tmp_path / "all")
    return tmp_path / "all"


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00002", ".data-00001-of-00002"])
def test_each_flipped_bit_and_each_truncation_is_found(small: Path, suffix: str) -> None:
    """Every byte is covered by a checksum, a bound or a rule."""
    file = Path(f"{small}{suffix}")
    good = file.read_bytes()
    for length in range(len(good)):
        file.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match=str(file.name).replace(".", r"\.")):
            read_everything(small)
    unnoticed = 0
    for position in range(len(good)):
        file.write_bytes(good[:position] + bytes([good[position] ^ 1 << position % 8]) + good[position + 1 :])
        try:
            read_everything(small)
        except CheckpointError:
            continue
        unnoticed += 1
    assert unnoticed == 0


def test_missing_files_and_other_files(tmp_path: Path, prefix: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none\.index: No such file"):
        read_index(tmp_path / "none")
    (tmp_path / "text.index").write_text("not a table, " * 10)
    with pytest.raises(CheckpointError, match="magic number"):
        read_index(tmp_path / "text")
    (tmp_path / "alone.index").write_bytes(Path(f"{prefix}.index").read_bytes())
    with pytest.raises(CheckpointError, match=r"alone\.data-00000-of-00001: No such file"):
        read_index(tmp_path / "alone")


def rewritten(prefix: Path, target: Path, change: Any) -> Path:
    """The index of `prefix` with its pairs changed, in one block with right checksums: what a liar would write."""
    from compiler.frontend.sstable import read_table

    pairs = read_table(Path(f"{prefix}.index").read_bytes())
    change(pairs)
    target.with_name(target.name + ".index").write_bytes(table_of(pairs))
    for data in prefix.parent.glob(f"{prefix.name}.data-*"):
        data.with_name(data.name.replace(prefix.name, target.name)).write_bytes(data.read_bytes())
    return target


def table_of(pairs: dict[bytes, bytes], kind: int = 0) -> bytes:
    def number(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number(value >> 7)

    def block(entries: list[tuple[bytes, bytes]]) -> bytes:
        body = b"".join(b"\x00" + number(len(key)) + number(len(value)) + key + value for key, value in entries)
        body += (0).to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes([kind])
        crc = crc32c(body)
        return body + (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")

    data = block(sorted(pairs.items()))
    index = block([(b"\xff", b"\x00" + number(len(data) - 5))])
    metaindex = block([])
    footer = number(len(data)) + number(len(metaindex) - 5) + number(len(data) + len(metaindex)) + number(len(index) - 5)
    return data + metaindex + index + footer.ljust(40, b"\x00") + (0xDB4775248B80FB57).to_bytes(8, "little")


def edit(name: bytes, **fields: Any) -> Any:
    from tensorflow.core.protobuf import tensor_bundle_pb2

    def change(pairs: dict[bytes, bytes]) -> None:
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(pairs[name])
        for field, value in fields.items():
            if field == "shape":
                del entry.shape.dim[:]
                for size in value:
                    entry.shape.dim.add(size=size)
            else:
                setattr(entry, field, value)
        pairs[name] = entry.SerializeToString()

    return change


def drop_slices(pairs: dict[bytes, bytes]) -> None:
    for key in [key for key in pairs if key[:1] == b"\x00"][:1]:
        del pairs[key]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit(b"a", offset=1 << 60), "within the file's"),
        (edit(b"a", offset=-1), "within the file's"),
        (edit(b"a", size=-5), "within the file's"),
        (edit(b"a", shard_id=9), "shard 9"),
        (edit(b"a", shape=[1 << 40]), "strings"),
        (edit(b"a", shape=[-2]), "expected at most 64 sizes of 0 or more"),
        (edit(b"a", shape=[0, 1 << 62, 1 << 62]), "2^59"),
        (edit(b"a", shape=[1] * 65), "at most 64"),
        (edit(b"a", dtype=1), "expected 8 for float32[2]"),
        (edit(b"b", shape=[5]), "hold 4 elements, expected 5"),
        (edit(b"b", shape=[2]), "beyond [2]"),
        (edit(b"b", shape=[4, 1]), "1 dimensions, expected 2"),
        (edit(b"b", dtype=2), "a slice of 'b' is float32[2], expected float64[2]"),
        (drop_slices, "lacks its slice"),
        (lambda pairs: pairs.update({b"": b""}), "0 shards"),
        (lambda pairs: pairs.pop(b""), "no header"),
        (lambda pairs: pairs.update({b"a": b"\xff\xff"}), "'a' is not a BundleEntryProto"),
        (lambda pairs: pairs.update({b"\xfe": pairs[b"a"]}), "not a name in UTF-8"),
        (lambda pairs: pairs.update({OBJECT_GRAPH.encode(): pairs[b"a"]}), "expected one string"),
    ],
)
def test_lies_with_right_checksums_are_found(small: Path, change: Any, words: str) -> None:
    read_everything(rewritten(small, small.with_name("same"), lambda pairs: None))
    with pytest.raises(CheckpointError) as caught:
        read_everything(rewritten(small, small.with_name("liar"), change))
    assert words in str(caught.value)
    assert "liar" in str(caught.value) and "\n" not in str(caught.value)


def test_a_compressed_index_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "packed.index").write_bytes(table_of({b"": b""}, kind=1))
    with pytest.raises(CheckpointError, match="snappy"):
        read_index(tmp_path / "packed")
