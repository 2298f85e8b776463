"""The orders in which passes run, as data, each line with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_INLINE = (
    "order-effects",  # a call waits for all it is given; what is inlined waits for control edges
    "inline-calls",  # everything below looks across calls
)
_FREEZE = ("freeze-variables",)  # weights become constants that can be folded and divided; oneDNN then rounds differently
_CLEAN = (
    "order-effects",  # inside what was inlined, too: below, paths of data end
    "relax-controls",  # reads that became constants need no waiting for
    "infer-types",  # symbolic shapes: the rest asks for them
    # each of these makes work for the others
    "repeat(simplify,resolve-shapes,fold-constants,infer-types,cse,dce)",
)
_FUSE = (
    "fold-batch-norm",  # before splitting, so that the splitter prices what will run
    "gelu-by-erf",  # Erf is vectorised, its complement is not: 5% of a vision transformer
    "pad-into-conv",  # before splitting, where a halo would be cut out of a copy: 4% of MobileNetV2
    "fold-transpose",
    "repeat(simplify,fold-constants,infer-types,cse,dce)",  # the folded weights, and what the rewrites left behind
)
_PIN = ("pin",)  # where the user wants operators: before they are put into bodies or divided, after what merges and folds them
_SPLIT = (
    # only what divides as freely as its nodes: layer norms as one lose the split of their rows, attention that of unequal batch symbols,
    # 0.2% of latency and 2% of throughput on GPT-2 and DistilBERT (simulated)
    'outline{only="activation"}',
    "choose",  # annotate
    "expand-splits",  # what divides in steps only is those steps
    "partition",  # materialise
    "inline-kinds",  # a call costs TensorFlow 3 microseconds, the open nodes nothing
    "repeat(resolve-shapes,fold-constants,infer-types,cse,dce)",  # constants of constants, and shape arithmetic that shards share
)
_REGIONS = (
    "outline",
    "fuse-bias-activation",
    "fuse-elementwise",
)
_SCHEDULE = (
    "reorder-ranks",  # what others wait for longest comes first
    "place",  # every node gets a device, under the memory caps
    "serialise",  # control edges, only where they pay
)

PIPELINES: Mapping[str, str] = MappingProxyType(
    {
        "default": ",".join((*_INLINE, *_FREEZE, *_CLEAN, *_FUSE, *_PIN, *_SPLIT, *_SCHEDULE)),
        # To read a model by its functions, and for an emitter that has kernels for them; as calls they are slower than the open nodes.
        "outline": ",".join((*_INLINE, *_FREEZE, *_CLEAN, *_FUSE, *_REGIONS, "infer-types", "dce")),
        "exact": ",".join((*_INLINE, *_CLEAN, *_PIN, *_SCHEDULE)),  # bit for bit: nothing that could round differently
    }
)
