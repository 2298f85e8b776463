"""The passes, by name: a literal table.  Importing registers nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler.pipeline.base import Pass
from passes.canonicalize.cse import CommonSubexpressions
from passes.canonicalize.dce import DeadCode
from passes.canonicalize.fold_constants import FoldConstants
from passes.canonicalize.freeze_variables import FreezeVariables
from passes.canonicalize.infer_types import InferTypes
from passes.canonicalize.inline_calls import InlineCalls
from passes.canonicalize.order_effects import OrderEffects
from passes.canonicalize.relax_controls import RelaxControls
from passes.canonicalize.resolve_shapes import ResolveShapes
from passes.canonicalize.simplify import Simplify
from passes.fuse.batch_norm import FoldBatchNorm
from passes.fuse.bias_activation import FuseBiasActivation
from passes.fuse.elementwise import FuseElementwise
from passes.fuse.gelu import GeluByErf
from passes.fuse.pad import PadIntoConv
from passes.fuse.transpose import FoldTranspose
from passes.outline.inline_kinds import InlineKinds
from passes.outline.outline import Outline
from passes.place.pin import Pin
from passes.place.place import Place
from passes.place.serialise import Serialise
from passes.reorder.memory import ReorderMemory
from passes.reorder.ranks import ReorderRanks
from passes.split.choose import Choose
from passes.split.expand import ExpandSplits
from passes.split.partition import Partition

PASSES: Mapping[str, type[Pass]] = MappingProxyType(
    {
        "order-effects": OrderEffects,
        "inline-calls": InlineCalls,
        "freeze-variables": FreezeVariables,
        "relax-controls": RelaxControls,
        "infer-types": InferTypes,
        "resolve-shapes": ResolveShapes,
        "fold-constants": FoldConstants,
        "cse": CommonSubexpressions,
        "dce": DeadCode,
        "simplify": Simplify,
        "fold-batch-norm": FoldBatchNorm,
        "fold-transpose": FoldTranspose,
        "pad-into-conv": PadIntoConv,
        "gelu-by-erf": GeluByErf,
        "fuse-bias-activation": FuseBiasActivation,
        "fuse-elementwise": FuseElementwise,
        "outline": Outline,
        "inline-kinds": InlineKinds,
        "pin": Pin,
        "choose": Choose,
        "expand-splits": ExpandSplits,
        "partition": Partition,
        "reorder-ranks": ReorderRanks,
        "reorder-memory": ReorderMemory,
        "place": Place,
        "serialise": Serialise,
    }
)
