"""The command line: every fault is one line on stderr and status 2, a failed check is 1, and nothing is half written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from compiler.cli import OneLineErrors, cli

ROOT = Path(__file__).resolve().parent.parent
TWO_WORKERS = str(ROOT / "fixtures/clusters/two_workers.toml")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="cleave")


def refused(*arguments: str) -> str:
    """The one line of a request that was refused."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("cleave: error: ")
    return line


# ------------------------------------------------------------------------------------------------------- without TensorFlow


def test_version_and_help():
    assert call("--version").stdout.startswith("cleave, version ")
    text = call("--help").stdout
    names = ("compile", "inspect", "opt", "diff", "validate", "run", "bisect", "reduce", "worker", "passes", "ops")
    assert all(name in text for name in names)
    assert "--debug" not in text


def test_no_arguments_is_help_and_a_bad_request():
    result = call()
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: cleave")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["compile"], "Missing argument 'MODEL'"),
        (["compile", "m"], "Missing option '-o'"),
        (["compile", "m", "-o", "out", "--objective", "fast"], "'fast' is not one of"),
        (["compile", "m", "-o", "out", "--numerics", "fast"], "'fast' is not one of"),
        (["compile", "m", "-o", "out", "--cluster", "gpu:2"], "cluster 'gpu:2': no such file, expected 'cpu:N'"),
        (["compile", "m", "-o", "out", "--cluster", "cpu:0"], "expected between 1 and 1024 devices"),
        (["compile", "m", "-o", "out", "--cluster", "cpu:5000"], "expected between 1 and 1024 devices"),
        (["compile", "m", "-o", "out", "--cluster", "file"], "not TOML"),
        (["worker", "--cluster", "cpu:2", "--task", "worker:0"], "cluster 'cpu:2' gives no addresses, add a [[tasks]] entry"),
        (["worker", "--cluster", TWO_WORKERS, "--task", "worker:5"], "has no task 'worker:5', it has worker:0, worker:1"),
        (["worker", "--cluster", TWO_WORKERS, "--task", "worker:0", "--cores", "a"], "--cores 'a' is not a list of numbers"),
        (["worker", "--cluster", TWO_WORKERS, "--task", "worker:0", "--cores", "4095"], "core 4095 cannot be used, expected some of"),
        (["run", "m", "--inputs", "x.npz", "-o", "y.npz", "--cluster", "cpu:2"], "gives no addresses, so nothing can be run on it"),
        (["run", "m", "--inputs", "x.npz", "-o", "y.npz", "--cluster", TWO_WORKERS, "--without", "worker:7"], "has no task 'worker:7'"),
        (["compile", "m", "-o", "out", "--pipeline", "chose"], "no pass 'chose'; did you mean 'choose'?"),
        (["compile", "m", "-o", "out", "--pipeline", "cse{"], "expected '}'"),
        (["compile", "m", "-o", "out", "--input", "x"], "is not NAME=SHAPE"),
        (["compile", "m", "-o", "out", "--input", "x=8,-1"], "has a negative size"),
        (["compile", "m", "-o", "taken"], "taken exists and is not empty"),
        (["compile", "m", "-o", "file"], "file is a file, expected a directory"),
        (["compile", "m", "-o", "file/out"], "is not a directory that can be written to"),
        (["compile", "m", "-o", "out", "--report", "nowhere/r.json"], "cannot write nowhere/r.json"),
        (["compile", "m", "-o", "out", "--save-plan", "taken"], "cannot write taken"),
        (
            ["compile", "m", "-o", "out", "--plan", "nothing.json"],
            "cannot read the plan nothing.json: No such file or directory; --save-plan",
        ),
        (["compile", "m", "-o", "out", "--plan", "file"], "file is not a plan as to_json writes it"),
        (["compile", "m", "-o", "out", "--pin", "dense"], "--pin 'dense' is not of the form NAME=VALUE, expected one such as dense=CPU:0"),
        (["compile", "m", "-o", "out", "--split", "=n"], "--split '=n' is not of the form NAME=VALUE"),
        (["plan", "m", "--what-if", "dense"], "--what-if 'dense' is not of the form NAME=VALUE"),
        (["plan", "m", "--save-plan", "nowhere/p.json"], "cannot write nowhere/p.json"),
        (["plan", "m", "--export-iopddl", "nowhere/p.json"], "cannot write nowhere/p.json"),
        (["run", "m", "--inputs", "nothing.npz", "-o", "y.npz"], "nothing.npz: no such file"),
        (["run", "m", "--inputs", "file", "-o", "y.npz"], "file is not a .npz archive"),
        (["run", "m", "--inputs", "objects.npz", "-o", "y.npz"], "objects.npz is not a .npz of plain arrays"),
        (["run", "m", "--inputs", "x.npz", "-o", "nowhere/y.npz"], "cannot write nowhere/y.npz"),
        (["validate", "a", "b", "--devices", "0"], "0 is not in the range"),
        (["compile", "m", "-o", "out", "--limit", "-1"], "-1 is not in the range"),
        (["opt", "m.ir", "--pipeline", "limit(cse)"], "m.ir: no such file"),
        (["bisect", "m", "-o", "file"], "file exists; choose another file with -o or pass --overwrite"),
        (["bisect", "m", "-o", "nowhere/b.ir"], "cannot write nowhere/b.ir"),
        (["bisect", "m", "--check", "speed"], "'speed' is not one of"),
        (["bisect", "m", "--cluster", "gpu:2"], "cluster 'gpu:2': no such file"),
        (["reduce", "m"], "Missing option '-o'"),
        (["reduce", "m", "-o", "b.ir", "--tries", "0"], "0 is not in the range"),
        (["ops", "more"], "unexpected extra argument"),
    ],
)
def test_a_bad_request_is_one_line(arguments: list[str], says: str):
    Path("file").write_text("text")
    Path("taken").mkdir()
    Path("taken/kept").write_text("kept")
    np.savez("x.npz", x=np.zeros(2))
    np.savez("objects.npz", x=np.array([{}], dtype=object))
    before = sorted(Path().rglob("*"))
    assert says in refused(*arguments)
    assert sorted(Path().rglob("*")) == before
    assert Path("file").read_text() == "text"


def fails_with(error: BaseException, *arguments: str) -> Result:
    @click.group(cls=OneLineErrors)
    def group() -> None: ...

    @group.command()
    def go() -> None:
        raise error

    return CliRunner().invoke(group, ["go", *arguments])


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (KeyError("lost"), 2, "unexpected KeyError at test_cli.py:"),
        (RecursionError("deep\nvery"), 2, "deep very"),
        (PermissionError(13, "Permission denied", "/etc/x"), 2, "cleave: error: /etc/x: Permission denied"),
        (MemoryError(), 2, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_no_exception_is_a_traceback(error: BaseException, status: int, says: str):
    result = fails_with(error)
    assert result.exit_code == status
    (line,) = (line for line in result.stderr.splitlines() if line)
    assert says in line


def test_debug_shows_the_traceback():
    result = fails_with(KeyError("lost"), "--debug")
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("cleave: error: unexpected KeyError")


def test_passes():
    found = json.loads(call("passes", "--json").stdout)
    assert {"name", "numerics", "options", "does"} == set(found["passes"][0])
    assert "default" in found["pipelines"]
    table = call("passes")
    assert table.exit_code == 0
    assert all(row["name"] in table.stdout for row in found["passes"])


def test_ops():
    found = json.loads(call("ops", "--json").stdout)
    assert next(row for row in found if row["op"] == "MatMul")["family"] == "matmul"
    assert "MatMul" in call("ops").stdout


# ---------------------------------------------------------------------------------------------------------- with TensorFlow


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`net`, `other` (its weights differ), `files` (reads one), `damaged` and `graph.pb`, cut short, and arrays."""
    import tensorflow as tf

    root = tmp_path_factory.mktemp("models")
    for name, scale in (("net", 1.0), ("other", 2.0)):
        tf.saved_model.save(*_network(tf, scale, root / name))
    reader = tf.Module()
    reader.read = tf.function(lambda path: {"text": tf.io.read_file(path)}, input_signature=[tf.TensorSpec([], tf.string)])
    tf.saved_model.save(reader, root / "files", {"serving_default": reader.read})
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(_relu(tf))
    (root / "graph.pb").write_bytes(graph.SerializeToString()[:-20])
    node = graph.node[1]
    node.op = "NcclAllReduce"
    node.attr["reduction"].s, node.attr["num_devices"].i, node.attr["shared_name"].s = b"sum", 1, b"all"
    (root / "kernel.pb").write_bytes(graph.SerializeToString())
    (root / "damaged").mkdir()
    (root / "damaged/saved_model.pb").write_bytes((root / "net/saved_model.pb").read_bytes()[:-40])
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    np.savez(root / "x.npz", x=x)
    np.savez(root / "shape.npz", x=x[:, :5])
    np.savez(root / "dtype.npz", x=x.astype(np.float64))
    np.savez(root / "name.npz", y=x)
    return root


def _network(tf: Any, scale: float, path: Path) -> tuple[Any, str, dict[str, Any]]:
    net = tf.Module()
    net.weight = tf.Variable(scale * np.random.default_rng(1).standard_normal((64, 128)).astype(np.float32))
    net.call = tf.function(
        lambda x: {"y": tf.nn.relu(tf.matmul(x, net.weight)), "s": tf.as_string(tf.shape(x))},
        input_signature=[tf.TensorSpec([None, 64], tf.float32, name="x")],
    )
    return net, str(path), {"serving_default": net.call}


def _relu(tf: Any) -> bytes:
    with tf.Graph().as_default() as graph:
        tf.nn.relu(tf.compat.v1.placeholder(tf.float32, [4], name="x"), name="y")
    data: bytes = graph.as_graph_def().SerializeToString()
    return data


@pytest.mark.tf
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compile", "nothere", "-o", "out"], "nothere: no such file or directory"),
        (["compile", "{net}", "-o", "out", "--signature", "train"], "no signature 'train', expected one of ['serving_default']"),
        (["compile", "{net}", "-o", "out", "--input", "z=8"], "--input 'z' is no input of the model"),
        (["compile", "{net}", "-o", "out", "--input", "x=8,65"], "size 65 is given where the model fixes 64"),
        (["compile", "{net}", "-o", "out", "--profile", "phone"], "no profile 'phone'"),
        (["compile", "{net}", "-o", "out", "--pipeline", "partition"], "pass 'partition' needs a module that is annotated"),
        (["compile", "{damaged}", "-o", "out"], "is it truncated?"),
        (["compile", "{graph.pb}", "-o", "out"], "cannot be read as a GraphDef"),
        (["compile", "{kernel.pb}", "-o", "out"], "NcclAllReduce"),
        (["compile", "{files}", "-o", "out"], "ReadFile 'ReadFile' touches files"),
        (["compile", "{net}/saved_model.pb", "-o", "out"], "is part of a SavedModel, expected its directory"),
        (["inspect", "{net}", "--signature", "train"], "no signature 'train'"),
        (["run", "{net}", "--inputs", "{shape.npz}", "-o", "y.npz"], "has shape [3, 5]; expected x: float32[?, 64]"),
        (["run", "{net}", "--inputs", "{dtype.npz}", "-o", "y.npz"], "is float64; expected x: float32[?, 64]"),
        (["run", "{net}", "--inputs", "{name.npz}", "-o", "y.npz"], "takes inputs ['x'], ['y'] were given"),
        (["validate", "{net}", "{kernel.pb}", "--signature", "train"], "no signature 'train'"),
        (["opt", "{x.npz}", "--pipeline", "cse"], "expected an .ir file"),
        (["bisect", "{net}", "--pipeline", "cs"], "no pass 'cs'; did you mean 'cse'?"),
        (["bisect", "{files}"], "ReadFile 'ReadFile' touches files"),
        (["bisect", "nothere.ir"], "cannot read nothere.ir"),
        (["reduce", "{net}", "--pipeline", "cse", "-o", "b.ir"], "nothing is wrong to begin with"),
    ],
)
def test_a_bad_model_is_one_line(models: Path, arguments: list[str], says: str):
    assert says in refused(*(a.replace("{", f"{models}/").replace("}", "") for a in arguments))
    assert not list(Path().iterdir())


def cleave(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, TensorFlow's own chatter included if there is any."""
    command = [sys.executable, "-m", "compiler", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env={"PYTHONPATH": str(ROOT), "PATH": ""})


@pytest.mark.tf
def test_compile_run_validate_and_look(models: Path):
    done = cleave(
        "compile", models / "net", "-o", "out", "--cluster", "cpu:2", "--measure", "--json", "--report", "r.json", "--dump", "dump"
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["valid"] is True
    assert set(told["measured_seconds"]) == {"original", "compiled"}
    assert json.loads(Path("r.json").read_text())["verdicts"]["serving_default"]["passed"] is True
    assert sorted(p.name for p in Path().iterdir()) == ["dump", "out", "r.json"]

    for model, file in ((models / "net", "a.npz"), ("out", "b.npz"), ("dump/00-imported.ir", "c.npz")):
        result = call("run", str(model), "--inputs", str(models / "x.npz"), "-o", file)
        assert result.stdout.splitlines() == ["s: string[2]", "y: float32[3, 128]"], result.output
    results = [np.load(name) for name in ("a.npz", "b.npz", "c.npz")]
    for other in results[1:]:
        np.testing.assert_allclose(other["y"], results[0]["y"], rtol=1e-5, atol=1e-5)
        assert other["s"].tolist() == [b"3", b"64"]

    assert call("validate", str(models / "net"), "out").stdout.startswith("VALID")
    assert "MatMul" in call("inspect", "out").stdout
    assert call("inspect", "out", "--dot").stdout.startswith("digraph")
    assert json.loads(call("inspect", "out", "--json").stdout)["entries"]["serving_default"]["inputs"] == {"x": "f32[b,64]"}
    assert call("opt", "dump/00-imported.ir", "--pipeline", "inline-calls,cse,dce", "-o", "less.ir").exit_code == 0
    assert call("diff", "less.ir", "less.ir").output == ""
    assert call("diff", "less.ir", "dump/00-imported.ir").exit_code == 1


@pytest.mark.tf
def test_a_failed_check_is_one(models: Path):
    result = call("validate", str(models / "net"), str(models / "other"), "--numerics", "exact", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["passed"] is False


@pytest.mark.tf
def test_a_result_that_is_not_the_same_function_is_not_written(models: Path, monkeypatch: pytest.MonkeyPatch):
    from compiler.driver import compile as driver
    from compiler.validate import Verdict

    monkeypatch.setattr(driver, "validate_entries", lambda *_: {"serving_default": Verdict("reassociate", faults=("wrong",), draws=1)})
    result = call("compile", str(models / "net"), "-o", "out")
    assert result.exit_code == 1
    assert "nothing was written" in result.stdout
    assert not Path("out").exists()


@pytest.mark.tf
def test_stderr_is_ours_alone(models: Path):
    done = cleave("compile", models / "damaged", "-o", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


WRONG = """module "m" facts(typed)

entry @f(%x: f32[3], %z: f32[3]) -> (y = %y, w = %w) {
  %s = Mul(%x, %z) : f32[3] from(s)
  %t = Mul(%s, %s) : f32[3] from(t)
  %d = Sub(%t, %x) : f32[3] from(d)
  %y = Exp(%d) : f32[3] from(y)
  %w = AddV2(%t, %x) : f32[3] from(w)
}
"""


@pytest.fixture
def wrong_passes(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Passes that are wrong on purpose among the others, and a module for them."""
    from compiler.driver import hunt
    from compiler.driver import passes as room
    from tests.pipeline.wrong import TABLE

    for module in (hunt, room):
        monkeypatch.setattr(module, "PASSES", TABLE)
    Path("m.ir").write_text(WRONG)
    return Path("m.ir")


@pytest.mark.tf
def test_bisect_names_the_rewrite_and_leaves_a_file_that_opt_fails_on(wrong_passes: Path):
    done = call("bisect", "m.ir", "--pipeline", "simplify,cse,slightly-off,dce", "-o", "b.ir")
    assert done.exit_code == 1, done.output
    said = done.stdout.splitlines()
    assert said[:3] == [
        "first wrong pass: slightly-off, 3 of 4 (it changes what is computed)",
        "first wrong rewrite: 3 of 4",
        "  d: Sub: times 1.001",
    ]
    assert any(line.startswith("  @f: y (") and "ABOVE" in line for line in said)
    assert said[-1] == "wrote b.ir: cleave opt b.ir"
    assert Path("b.ir").read_text().startswith('pipeline "validate-each(limit{most=3}(slightly-off))"\nmodule "m"')
    assert "pass 'slightly-off' changed what the module computes: @f: y" in refused("opt", "b.ir")

    told = json.loads(
        call("bisect", "m.ir", "--pipeline", "stale-shape", "--check", "verify", "--overwrite", "-o", "b.ir", "--json").stdout
    )
    assert (told["culprit"]["pass"], told["culprit"]["kind"], told["culprit"]["rewrite"]["number"]) == ("stale-shape", "rule", 3)
    assert "after pass 'stale-shape': graph 'f' node 'd' breaks the rule" in refused("opt", "b.ir")
    assert call("opt", "b.ir", "--no-verify-each").exit_code == 0


@pytest.mark.tf
def test_reduce_leaves_what_shows_the_fault(wrong_passes: Path):
    done = call("reduce", "m.ir", "--pipeline", "simplify,cse,raises,dce", "--check", "crash", "-o", "r.ir")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].startswith("raises: it raises, in 2 nodes of 7, after ")
    assert "%sub = Sub(%x, %x) : f32[1]" in done.stdout
    assert done.stdout.splitlines()[-1] == "wrote r.ir: cleave opt r.ir"
    assert "pass 'raises' failed: KeyError: 'sub'" in refused("opt", "r.ir")


@pytest.mark.tf
def test_opt_limits_and_validates(wrong_passes: Path):
    steps = ("--pipeline", "cse,swaps-operands,dce")
    done = call("opt", "m.ir", *steps, "--validate-each", "--limit", "2")
    assert done.exit_code == 0, done.output
    assert "Sub(%t, %x)" in done.stdout and "Mul(%z, %x)" in done.stdout


@pytest.mark.tf
def test_bisect_and_reduce_take_models(models: Path, wrong_passes: Path):
    """A wrong pass at the end of a model's own: found among all, and left with the model's weights out of the way."""
    steps = "inline-calls,freeze-variables,infer-types,dce,decides,infer-types,carries-out"
    done = call("bisect", str(models / "net"), "--pipeline", steps)
    assert (done.exit_code, done.stdout) == (0, f"nothing is wrong: every pass leaves what {models / 'net'} computes\n")
    done = call("reduce", str(models / "net"), "--pipeline", "inline-calls,freeze-variables,infer-types,wrong-relu", "-o", "r.ir")
    assert done.exit_code == 0, done.output
    assert "it changes what is computed, in 2 nodes of" in done.stdout
    assert not list(Path().glob("*.weights"))
