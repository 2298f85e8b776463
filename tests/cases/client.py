"""A client that knows nothing of this project: loads a SavedModel once and calls its signatures, each several times in a row.

python -I client.py JOB: a pickle of {model, out, devices, route, grappler, calls: {signature: [inputs, ...]}}
`out` gets {signature: [outputs by key, or the error's text]}. Routes: "v2" `tf.saved_model.load`, "v1" a Session over the loaded graph.
"""

import pickle
import sys

import numpy as np
import tensorflow as tf


def main(job):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * job["devices"])
    if not job["grappler"]:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    found = run_loaded(job) if job["route"] == "v2" else run_session(job)
    assert not {"compiler", "passes"} & sys.modules.keys()
    with open(job["out"], "wb") as file:
        pickle.dump(found, file)


def run_loaded(job):
    model = tf.saved_model.load(job["model"])
    found = {}
    for key, calls in job["calls"].items():
        function = model.signatures[key]
        found[key] = [
            answer(lambda c=inputs, f=function: {k: v.numpy() for k, v in f(**{n: tensor(a) for n, a in c.items()}).items()})
            for inputs in calls
        ]
    return found


def tensor(array):
    return tf.constant(array.tolist(), tf.string, array.shape) if array.dtype == object else tf.constant(array)


def run_session(job):
    tf.compat.v1.disable_eager_execution()
    config = tf.compat.v1.ConfigProto(device_count={"CPU": job["devices"]})
    if not job["grappler"]:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
    found = {}
    with tf.compat.v1.Session(graph=tf.Graph(), config=config) as session:
        meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], job["model"])
        for key, calls in job["calls"].items():
            signature = meta.signature_def[key]
            fetches = {k: info.name for k, info in signature.outputs.items()}
            found[key] = [
                answer(lambda c=inputs, s=signature, f=fetches: session.run(f, {s.inputs[n].name: a for n, a in c.items()}))
                for inputs in calls
            ]
    return found


def answer(run):
    try:
        return {key: np.asarray(value) for key, value in run().items()}
    except Exception as error:
        return " ".join(str(error).split())


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as job_file:
        main(pickle.load(job_file))
