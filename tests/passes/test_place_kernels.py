"""What an accelerator has no kernel for runs on the CPU of its task, pinned to the accelerator or not."""

from __future__ import annotations

from compiler.ir.text import parse_module
from compiler.pipeline.base import Context
from cost_model.cluster import Cluster
from cost_model.devices import Device, Link
from passes.place.kernels import Kernels, accelerators
from passes.place.place import Place

CPU, GPU = "/job:worker/task:1/device:CPU:0", "/job:worker/task:1/device:GPU:0"
CLUSTER = Cluster(
    (Device(CPU, "CPU", {"float32": 1e9}, 1e9), Device(GPU, "GPU", {"float32": 1e12}, 1e12)), (Link("bus", 1e-6, 1e10),), "one host"
)
TEXT = f"""module "m" facts(typed)
entry @main(%x: f32[64,64], %n: i32[4], %s: string[2]) -> (y = %y, p = %p, n = %more, s = %t) {{
  %m = MatMul(%x, %x) : f32[64,64]
  %y = Erfc(%m) : f32[64,64]
  %p = Erfc(%m) : f32[64,64] on "{GPU}"
  %more = AddV2(%n, %n) : i32[4]
  %t = StringLower(%s) : string[2]
}}"""


def placed(kernels: Kernels | None) -> tuple[dict[str, str], list[str]]:
    services: dict[type, object] = {Cluster: CLUSTER, **({Kernels: kernels} if kernels is not None else {})}
    module, context = parse_module(TEXT), Context(services=services)
    Place().run(module, context)
    return {n.name: n.device for n in module.entries["main"]}, [n.what for n in context.notes if n.kind == "refusal"]


def test_what_the_accelerator_lacks_runs_on_its_host() -> None:
    devices, refused = placed(Kernels(lambda op, attrs, kind: op != "Erfc" or kind != "GPU"))
    assert devices["m"] == GPU and devices["y"] == devices["p"] == devices["more"] == devices["t"] == CPU
    assert refused == [f"{GPU} has no kernel for Erfc of these types, it runs on {CPU}"]


def test_types_decide() -> None:
    asked: dict[str, object] = {}

    def known(op: str, attrs: object, kind: str) -> bool:
        asked[op] = attrs
        return True

    devices, refused = placed(Kernels(known))
    assert devices["p"] == devices["y"] == GPU and not refused
    assert asked["MatMul"]["T"] == "float32"  # type: ignore[index]


def test_without_the_service_everything_runs_everywhere() -> None:
    devices, refused = placed(None)
    assert devices["y"] == devices["p"] == GPU and devices["t"] == CPU and not refused
    assert accelerators(CLUSTER) == ("GPU",)
