"""`make demo`: a small network is trained, compiled for two devices, checked, saved, and run by a client that knows nothing of cleave.

python examples/demo.py [OUT]        OUT: where the SavedModel goes (default: a temporary directory)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import compiler  # noqa: E402
from compiler.commands.show import print_compiled  # noqa: E402
from compiler.ir.text import print_graph  # noqa: E402
from fixtures.models import digit_cnn  # noqa: E402
from fixtures.models.digits import digits  # noqa: E402

EPOCHS, TRAIN, TEST = 5, 2000, 500


def main(out: Path) -> None:
    say("1. Build and train: Conv2D, MaxPool, Dense, Dense on synthetic digits")
    images, labels = digits(TRAIN, seed=0)
    held_out, truth = digits(TEST, seed=1)
    model = digit_cnn.build(seed=0)
    model.fit(images, labels, epochs=EPOCHS, batch_size=64, verbose=0)
    before = float(np.mean(np.argmax(model.predict(held_out, verbose=0), axis=1) == truth))
    print(f"accuracy on {TEST} held-out digits: {before:.4f}")

    say("2. Export with Keras, compile for two devices, validate against the export")
    exported = out / "exported"
    model.export(str(exported), verbose=False)
    compiled = compiler.compile_model(exported, cluster="cpu:2")
    target = compiled.save(out / "compiled")
    print_compiled(compiled, {}, str(target), as_json=False)

    say("3. Why is the first dense layer, 'hidden', as it is?")
    print(compiled.plan.explain("hidden"))

    say("4. The IR before and after")
    show("imported", compiler.load(exported).module, 12)
    show("compiled", compiled.module, 24)

    say("5. An independent client: saved_model_cli, without this project on its path")
    independent(target, held_out[:3], out)

    say("6. The same accuracy?")
    after = accuracy(compiled, held_out, truth)
    print(f"before {before:.4f}, after {after:.4f}")
    if before != after or not compiled.report.valid:
        sys.exit("demo: the compiled network is not the same function")


def accuracy(compiled: compiler.Compiled, images: np.ndarray, labels: np.ndarray) -> float:
    outputs = compiled(images)
    (scores,) = outputs.values()
    return float(np.mean(np.argmax(np.asarray(scores), axis=1) == labels))


def independent(model: Path, images: np.ndarray, work: Path) -> None:
    np.save(work / "images.npy", images)
    info = compiler.load(model).signatures["serving_default"]
    (name,) = info.inputs
    ours = "; ".join(f"sys.modules[{name!r}] = None" for name in ("compiler", "passes", "cost_model"))  # to import them is an error
    code = f"import sys; {ours}; from tensorflow.python.tools.saved_model_cli import main; main()"
    command = [sys.executable, "-I", "-c", code, "run", "--dir", str(model), "--tag_set", "serve", "--signature_def", "serving_default"]
    done = subprocess.run([*command, "--inputs", f"{name}=images.npy"], cwd=work, capture_output=True, text=True, check=False)
    print(done.stdout.strip())
    if done.returncode:
        sys.exit(f"demo: saved_model_cli failed:\n{done.stderr[-1000:]}")


def show(title: str, module: object, most: int) -> None:
    (graph,) = [g for name, g in module.entries.items() if name == "serving_default"]  # type: ignore[attr-defined]
    lines = print_graph(graph).splitlines()
    print(f"-- {title}: {len(graph)} nodes")
    print("\n".join(line[:140] for line in lines[:most]) + ("\n  ..." if len(lines) > most else ""))


def say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="cleave-demo-") as directory:
            main(Path(directory))
