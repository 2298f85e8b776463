"""A client without this project: runs a SavedModel in a fresh, isolated interpreter, and traces it in a v1 Session."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

RUN = """
import json, sys
import numpy as np
import tensorflow as tf
job = json.load(open(sys.argv[1]))
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * job["devices"])
model = tf.saved_model.load(job["model"])
function = model.signatures[job["signature"]]
given = np.load(job["inputs"], allow_pickle=True)
results = function(**{name: tf.constant(given[name].tolist() if given[name].dtype == object else given[name]) for name in given.files})
np.savez(job["outputs"], **{name: value.numpy() for name, value in results.items()})
assert "compiler" not in sys.modules and "passes" not in sys.modules
"""
TRACE = """
import json, sys
import numpy as np
import tensorflow as tf
job = json.load(open(sys.argv[1]))
tf.compat.v1.disable_eager_execution()
config = tf.compat.v1.ConfigProto(device_count={"CPU": job["devices"]})
with tf.compat.v1.Session(graph=tf.Graph(), config=config) as session:
    meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], job["model"])
    signature = meta.signature_def[job["signature"]]
    given = np.load(job["inputs"], allow_pickle=True)
    feeds = {signature.inputs[name].name: given[name] for name in given.files}
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    metadata = tf.compat.v1.RunMetadata()
    session.run({n: i.name for n, i in signature.outputs.items()}, feeds, options=options, run_metadata=metadata)
found = {}
for device in metadata.step_stats.dev_stats:
    found.setdefault(device.device, []).extend(node.node_name for node in device.node_stats)
json.dump(found, open(job["outputs"], "w"))
"""


def run(model: Path, inputs: Mapping[str, np.ndarray], signature: str = "serving_default", devices: int = 2) -> dict[str, np.ndarray]:
    """The signature's outputs, computed by TensorFlow alone."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "outputs.npz"
        _client(RUN, model, inputs, signature, devices, out, Path(directory))
        with np.load(out, allow_pickle=True) as found:
            return {name: found[name] for name in found.files}


def trace(model: Path, inputs: Mapping[str, np.ndarray], signature: str = "serving_default", devices: int = 2) -> dict[str, list[str]]:
    """Device -> names of the nodes that ran on it, in a v1 Session's full trace."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "trace.json"
        _client(TRACE, model, inputs, signature, devices, out, Path(directory))
        found: dict[str, list[str]] = json.loads(out.read_text())
        return found


def _client(code: str, model: Path, inputs: Mapping[str, np.ndarray], signature: str, devices: int, out: Path, work: Path) -> None:
    given = work / "inputs.npz"
    np.savez(given, **inputs)  # type: ignore[arg-type]
    job = {"model": str(model.absolute()), "inputs": str(given), "outputs": str(out), "signature": signature, "devices": devices}
    (work / "job.json").write_text(json.dumps(job))
    done = subprocess.run([sys.executable, "-I", "-c", code, str(work / "job.json")], cwd=work, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
