"""Clusters: text and back, links, groups, and each fault of a text in one line that names it."""

from pathlib import Path

import pytest

from compiler.ir.errors import CleaveError
from compiler.ir.types import DType
from cost_model.cluster import Cluster
from cost_model.devices import device_name

CLUSTERS = sorted(Path("fixtures/clusters").glob("*.toml"))
DEVICE = '[[devices]]\nname = "/device:CPU:0"\npeak_flops = { float32 = 1e9 }\nmemory_bandwidth = 1e9\n'
WORKER = DEVICE.replace("/device", "/job:w/task:0/device")
TASK = '[[tasks]]\nname = "/job:w/task:0"\naddress = "a:1"\n'


@pytest.mark.parametrize("source", [*map(str, CLUSTERS), "cpu:1", "cpu:16"])
def test_text_and_back(source: str) -> None:
    cluster = Cluster.parse(source)
    assert Cluster.parse(cluster.to_toml()) == cluster
    assert Cluster.parse(cluster.to_toml()).to_toml() == cluster.to_toml()


def test_the_fixtures_are_there() -> None:
    assert [path.stem for path in CLUSTERS] == ["a100x8", "cpu2", "heterogeneous", "two_workers"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nowhere.toml", "no such file, expected 'cpu:N'"),
        ("cpu:0", "expected between 1 and"),
        ("cpu:x", "no such file"),
        ('name = "a"\n', "has no devices"),
        ("devices = [\n", "not TOML"),
        ("[devices]\nname = 1\n", "write [[devices]]"),
        (DEVICE + "color = 1\n", "unknown key 'color'"),
        (DEVICE.replace("1e9\n", "-1e9\n"), "memory_bandwidth is -1000000000.0, expected more than 0"),
        (DEVICE.replace("1e9\n", "true\n"), "memory_bandwidth is True, expected a number"),
        (DEVICE.replace("1e9\n", "nan\n"), "memory_bandwidth is nan, expected a number"),
        (DEVICE.replace("memory_bandwidth = 1e9", ""), "memory_bandwidth is missing"),
        (DEVICE.replace("float32", "f32"), "write 'float32'"),
        (DEVICE.replace("float32", "float33"), "not an element type"),
        (DEVICE.replace("float32", "float64"), "no float32 figure"),
        (DEVICE.replace("/device:CPU:0", "CPU 0"), "not a device name"),
        (DEVICE.replace("/device:CPU:0", "/job:w/task:0"), "no whole device name"),
        (DEVICE + 'kind = "GPU"\n', "kind is 'GPU' but the name"),
        (DEVICE + DEVICE, "names device '/device:CPU:0' twice"),
        (DEVICE.replace(":0", ":[4-2]"), "counts down"),
        (DEVICE + "efficiency = { matmul = 1.5 }\n", "shares of at most 1"),
        (DEVICE + "efficiency = { matmul = [[2, 0.1], [1, 0.2]] }\n", "at increasing flops"),
        (DEVICE + "efficiency = { gemm = 0.5 }\n", "unknown class of operators"),
        (DEVICE + TASK.replace("0", "1"), "gives an address for '/job:w/task:1', which has no [[devices]]"),
        (WORKER + WORKER.replace(":0/", ":1/") + TASK, "has no address for task '/job:w/task:1'"),
        (WORKER + TASK + TASK, "gives task '/job:w/task:0' twice"),
        (WORKER + TASK.replace("a:1", "a"), "address is 'a', expected HOST:PORT"),
        (WORKER + TASK.replace("a:1", "a:[1-2]"), "1 names and 2 addresses"),
        (WORKER + TASK.replace("/task:0", ""), "is no task, expected one such as"),
        (DEVICE + '[[links]]\nname = "l"\nalpha_seconds = -1\nbytes_per_second = 1\n', "alpha_seconds is -1, expected at least 0"),
        (DEVICE + '[[links]]\nname = "l"\nalpha_seconds = 0\nbytes_per_second = 1\nscope = "rack"\n', "scope is 'rack', expected one of"),
    ],
)
def test_faults_are_named(text: str, words: str) -> None:
    with pytest.raises(CleaveError) as caught:
        Cluster.parse(text)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_device_names_in_any_form() -> None:
    assert str(device_name("/CPU:1")) == str(device_name("/device:cpu:1")) == "/device:CPU:1"
    assert str(device_name("/job:localhost/replica:0/task:0/device:CPU:1")) == "/device:CPU:1"
    assert device_name("/job:worker/task:1/device:GPU:3") == ("worker", 1, "GPU", 3)


def test_pins_resolve_to_the_first_that_fits() -> None:
    cluster = Cluster.parse("fixtures/clusters/heterogeneous.toml")
    assert cluster.resolve("/job:worker/task:1") == "/job:worker/task:1/device:GPU:0"
    assert cluster.resolve("/CPU:0") == "/job:worker/task:0/device:CPU:0"
    with pytest.raises(CleaveError, match="no device that fits '/device:TPU:0'"):
        cluster.resolve("/device:TPU:0")


def test_hosts_are_not_workers() -> None:
    cluster = Cluster.parse("fixtures/clusters/heterogeneous.toml")
    assert [d.name for d in cluster.workers] == [
        "/job:worker/task:0/device:GPU:0",
        "/job:worker/task:1/device:GPU:0",
        "/job:worker/task:2/device:CPU:0",
    ]
    assert cluster.host("/job:worker/task:1/device:GPU:0") == "/job:worker/task:1/device:CPU:0"


def test_the_first_link_that_joins_carries() -> None:
    cluster = Cluster.parse("fixtures/clusters/a100x8.toml")
    assert cluster.link("/device:GPU:0", "/device:GPU:7").name == "nvlink"
    assert cluster.link("/device:GPU:0", "/device:CPU:0").name == "pcie"
    lonely = Cluster(cluster.devices)
    with pytest.raises(CleaveError, match="no link between"):
        lonely.link("/device:GPU:0", "/device:GPU:1")


def test_groups_have_a_level_for_each_reach() -> None:
    text = (
        Path("fixtures/clusters/a100x8.toml")
        .read_text(encoding="utf-8")
        .replace('"/device:GPU:[0-7]"', '"/job:w/task:[0-3]/device:GPU:[0-7]"')
    )
    text += '\n[[links]]\nname = "network"\nalpha_seconds = 1e-5\nbytes_per_second = 25e9\nport = "task"\n'
    cluster = Cluster.parse(text)
    levels = cluster.group([n for n in cluster.names if "GPU" in n]).levels
    assert [(members, link.name, shared) for members, link, shared in levels] == [(8, "nvlink", 1), (4, "network", 8)]
    assert cluster.group(["/job:w/task:0/device:GPU:0"]).levels == ()


def test_efficiency_is_read_off_the_curve() -> None:
    device = Cluster.parse("fixtures/clusters/a100x8.toml").devices[0]
    assert device.share_of_peak("matmul", 1.0) == 0.05
    assert device.share_of_peak("matmul", 1e15) == 0.72
    assert device.share_of_peak("matmul", 1e9) == pytest.approx((0.05 + 0.4) / 2)
    assert device.peak(DType("float64")) == 9.7e12 and device.peak(DType("int64")) == 19.5e12


def test_tasks_are_named_and_leave() -> None:
    cluster = Cluster.parse("fixtures/clusters/two_workers.toml")
    assert [(t.job, t.number, t.address) for t in cluster.tasks] == [("worker", 0, "127.0.0.1:2222"), ("worker", 1, "127.0.0.1:2223")]
    assert cluster.task("worker:1").name == "/job:worker/task:1"
    rest = cluster.without("worker:0")
    assert rest.names == ("/job:worker/task:1/device:CPU:0",) and rest.tasks == cluster.tasks[1:]
    with pytest.raises(CleaveError, match="has no task 'worker:2', it has worker:0, worker:1"):
        cluster.task("worker:2")
    with pytest.raises(CleaveError, match="has no devices left"):
        rest.without("worker:1")
