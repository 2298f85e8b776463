"""What canonicalize and fuse rewrite, and what they refuse: two texts each, run through TensorFlow as well."""

import pytest

from tests.checks import RunModule, assert_refuses, assert_rewrites, assert_same_function, run

HEAD = 'module "m" facts(typed)\n\n'
REWRITES: dict[str, tuple[str, str, str]] = {
    "cse merges equal nodes": (
        "cse",
        """entry @f(%x: f32[3]) -> (y = %y) {
  %a = Relu(%x) : f32[3] from(a)
  %b = Relu(%x) : f32[3] from(b)
  %y = Mul(%a, %b) : f32[3] from(y)
}""",
        """entry @f(%x: f32[3]) -> (y = %y) {
  %a = Relu(%x) : f32[3] from(a, b)
  %y = Mul(%a, %a) : f32[3] from(y)
}""",
    ),
    "dce drops what reaches no output": (
        "dce",
        """entry @f(%x: f32[3]) -> (y = %y) {
  %dead = Exp(%x) : f32[3] from(a)
  %dead2 = Exp(%dead) : f32[3] from(a)
  %y = Neg(%x) : f32[3] from(y)
}""",
        """entry @f(%x: f32[3]) -> (y = %y) {
  %y = Neg(%x) : f32[3] from(y)
}""",
    ),
    "identities go": (
        "simplify",
        """entry @f(%x: f32[3]) -> (y = %y) {
  %i = Identity(%x) : f32[3] from(a)
  %s = StopGradient(%i) : f32[3] from(b)
  %n = IdentityN(%s, %s) : (f32[3], f32[3]) from(c)
  %y = Sub(%n:1, %x) : f32[3] from(y)
}""",
        """entry @f(%x: f32[3]) -> (y = %y) {
  %y = Sub(%x, %x) : f32[3] from(y)
}""",
    ),
    "two transposes are one": (
        "simplify,dce",
        """entry @f(%x: f32[2,3,4]) -> (y = %y) {
  %p = Const() {value=tensor(i32[3], [1, 2, 0])} : i32[3] from(p)
  %q = Const() {value=tensor(i32[3], [0, 2, 1])} : i32[3] from(q)
  %t = Transpose(%x, %p) : f32[3,4,2] from(t)
  %y = Transpose(%t, %q) : f32[3,2,4] from(y)
}""",
        """entry @f(%x: f32[2,3,4]) -> (y = %y) {
  %y/const = Const() {value=tensor(i32[3], [1, 0, 2])} : i32[3] from(t, y)
  %y = Transpose(%x, %y/const) : f32[3,2,4] from(t, y)
}""",
    ),
    "a pad of nothing goes": (
        "simplify,dce",
        """entry @f(%x: f32[2,3]) -> (y = %y) {
  %p = Const() {value=splat(i32[2,2], 0)} : i32[2,2] from(p)
  %q = Pad(%x, %p) : f32[2,3] from(q)
  %y = Exp(%q) : f32[2,3] from(y)
}""",
        """entry @f(%x: f32[2,3]) -> (y = %y) {
  %y = Exp(%x) : f32[2,3] from(y)
}""",
    ),
    "a shape chain becomes a constant": (
        "resolve-shapes,dce",
        """entry @f(%x: f32[b,2,3]) -> (y = %y) {
  %s = Shape(%x) : i32[3] from(s)
  %zero = Const() {value=tensor(i32[1], [0])} : i32[1] from(c)
  %one = Const() {value=tensor(i32[1], [1])} : i32[1] from(c)
  %n = StridedSlice(%s, %zero, %one, %one) {shrink_axis_mask=1} : i32[] from(n)
  %six = Const() {value=tensor(i32[], 6)} : i32[] from(c)
  %p = Pack(%n, %six) : i32[2] from(p)
  %y = Reshape(%x, %p) : f32[b,6] from(y)
}""",
        """entry @f(%x: f32[b,2,3]) -> (y = %y) {
  %y/shape = Const() {value=tensor(i32[2], [-1, 6])} : i32[2] from(y)
  %y = Reshape(%x, %y/shape) : f32[b,6] from(y)
}""",
    ),
    "waiting for a constant is waiting for nothing": (
        "relax-controls,dce",
        """entry @f(%x: f32[3]) -> (y = %y) {
  %c = Const() {value=tensor(f32[], 1.0)} : f32[] from(c)
  %n = NoOp() : () from(n) after(%c)
  %y = Exp(%x) : f32[3] from(y) after(%n)
}""",
        """entry @f(%x: f32[3]) -> (y = %y) {
  %y = Exp(%x) : f32[3] from(y)
}""",
    ),
    "a swap of the last axes goes into the product": (
        "fold-transpose,dce",
        """entry @f(%x: f32[4,4]) -> (y = %y) {
  %p = Const() {value=tensor(i32[2], [1, 0])} : i32[2] from(p)
  %t = Transpose(%x, %p) : f32[4,4] from(t)
  %y = MatMul(%t, %x) : f32[4,4] from(y)
}""",
        """entry @f(%x: f32[4,4]) -> (y = %y) {
  %y = MatMul(%x, %x) {transpose_a=true} : f32[4,4] from(t, y)
}""",
    ),
    "an attention transpose goes into the batched product": (
        "fold-transpose,dce",
        """entry @f(%x: f32[2,3,4], %k: f32[2,5,4]) -> (y = %y) {
  %p = Const() {value=tensor(i32[3], [0, 2, 1])} : i32[3] from(p)
  %t = Transpose(%k, %p) : f32[2,4,5] from(t)
  %y = BatchMatMulV2(%x, %t) : f32[2,3,5] from(y)
}""",
        """entry @f(%x: f32[2,3,4], %k: f32[2,5,4]) -> (y = %y) {
  %y = BatchMatMulV2(%x, %k) {adj_y=true} : f32[2,3,5] from(t, y)
}""",
    ),
    "an added channel constant is a bias": (
        "fold-batch-norm,dce",
        """entry @f(%x: f32[1,4,4,2]) -> (y = %y) {
  %w = Const() {value=tensor(f32[1,1,2,3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[1,1,2,3] from(w)
  %t = Const() {value=tensor(f32[1,1,1,3], [0.5, 1.5, 2.5])} : f32[1,1,1,3] from(t)
  %c = Conv2D(%x, %w) {padding="VALID", strides=[1, 1, 1, 1]} : f32[1,4,4,3] from(c)
  %y = AddV2(%c, %t) : f32[1,4,4,3] from(y)
}""",
        """entry @f(%x: f32[1,4,4,2]) -> (y = %y) {
  %w = Const() {value=tensor(f32[1,1,2,3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[1,1,2,3] from(w)
  %y/conv2d = Conv2D(%x, %w) {padding="VALID", strides=[1, 1, 1, 1]} : f32[1,4,4,3] from(c, y)
  %y/const = Const() {value=tensor(f32[3], [0.5, 1.5, 2.5])} : f32[3] from(c, y)
  %y = BiasAdd(%y/conv2d, %y/const) : f32[1,4,4,3] from(c, y)
}""",
    ),
    "a call becomes its body, and whoever waited for it waits for its effects": (
        "inline-calls",
        """entry @f(%x: f32[3]) -> (y = %c) {
  %first = NoOp() : () from(first)
  %c = Call(%x) {f=@g} : f32[3] from(model/PartitionedCall) after(%first)
  %last = NoOp() : () from(last) after(%c)
}
function @g(%a: f32[3]) -> (r = %r) {
  %r = Exp(%a) : f32[3] from(layer/exp)
}""",
        """entry @f(%x: f32[3]) -> (y = %c/r) {
  %first = NoOp() : () from(first)
  %c/r = Exp(%x) : f32[3] from(model/layer/exp) after(%first)
  %last = NoOp() : () from(last) after(%c/r)
}""",
    ),
    "a variable nobody writes is its value": (
        "freeze-variables,dce",
        """variable @w : f32[2] = tensor(f32[2], [1.0, 2.0])

entry @f(%x: f32[2]) -> (y = %y) {
  %h = Variable() {ref="w"} : resource<f32[2]>[] from(h)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r)
  %y = Mul(%x, %r) : f32[2] from(y)
}""",
        """variable @w : f32[2] = tensor(f32[2], [1.0, 2.0])

entry @f(%x: f32[2]) -> (y = %y) {
  %r = Const() {value=tensor(f32[2], [1.0, 2.0])} : f32[2] from(r)
  %y = Mul(%x, %r) : f32[2] from(y)
}""",
    ),
}

REFUSALS: dict[str, tuple[str, str, str]] = {
    "a random op is drawn twice": (
        "cse",
        """entry @f(%s: i32[1]) -> (a = %a, b = %b) {
  %a = RandomUniform(%s) {dtype=f32} : f32[?] from(a)
  %b = RandomUniform(%s) {dtype=f32} : f32[?] from(b)
}""",
        "",
    ),
    "0.0 and -0.0 are two constants": (
        "cse",
        """entry @f(%x: f32[]) -> (a = %a, b = %b) {
  %p = Const() {value=tensor(f32[], 0.0)} : f32[] from(p)
  %n = Const() {value=tensor(f32[], -0.0)} : f32[] from(n)
  %a = RealDiv(%x, %p) : f32[] from(a)
  %b = RealDiv(%x, %n) : f32[] from(b)
}""",
        "",
    ),
    "an output keeps the intermediate": (
        "fold-transpose",
        """entry @f(%x: f32[4,4]) -> (y = %y, t = %t) {
  %p = Const() {value=tensor(i32[2], [1, 0])} : i32[2] from(p)
  %t = Transpose(%x, %p) : f32[4,4] from(t)
  %y = MatMul(%t, %x) : f32[4,4] from(y)
}""",
        "also needed by output 't'",
    ),
    "an identity permutation is none of the product's": (
        "fold-transpose",
        """entry @f(%x: f32[4,4]) -> (y = %y) {
  %p = Const() {value=tensor(i32[2], [0, 1])} : i32[2] from(p)
  %t = Transpose(%x, %p) : f32[4,4] from(t)
  %y = MatMul(%t, %x) : f32[4,4] from(y)
}""",
        "not a swap of the last two axes",
    ),
    "an attention permutation of more than two axes stays": (
        "fold-transpose",
        """entry @f(%x: f32[2,3,4,4], %k: f32[2,4,3,4]) -> (y = %y) {
  %p = Const() {value=tensor(i32[4], [0, 2, 3, 1])} : i32[4] from(p)
  %t = Transpose(%k, %p) : f32[2,3,4,4] from(t)
  %y = BatchMatMulV2(%x, %t) : f32[2,3,4,4] from(y)
}""",
        "not a swap of the last two axes",
    ),
    "adj conjugates": (
        "fold-transpose",
        """entry @f(%x: c64[2,3,3]) -> (y = %y) {
  %p = Const() {value=tensor(i32[3], [0, 2, 1])} : i32[3] from(p)
  %t = Transpose(%x, %p) : c64[2,3,3] from(t)
  %y = BatchMatMulV2(%x, %t) : c64[2,3,3] from(y)
}""",
        "would conjugate",
    ),
    "a pinned transpose stays": (
        "fold-transpose",
        """entry @f(%x: f32[4,4]) -> (y = %y) {
  %p = Const() {value=tensor(i32[2], [1, 0])} : i32[2] from(p)
  %t = Transpose(%x, %p) : f32[4,4] on "/device:CPU:1" from(t)
  %y = MatMul(%t, %x) : f32[4,4] from(y)
}""",
        "is on /device:CPU:1",
    ),
    "a plane of constants is no bias": (
        "fold-batch-norm",
        """entry @f(%x: f32[1,2,3,2]) -> (y = %y) {
  %w = Const() {value=splat(f32[1,1,2,3], 0.5)} : f32[1,1,2,3] from(w)
  %t = Const() {value=tensor(f32[2,3,1], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[2,3,1] from(t)
  %c = Conv2D(%x, %w) {padding="SAME", strides=[1, 1, 1, 1]} : f32[1,2,3,3] from(c)
  %y = AddV2(%c, %t) : f32[1,2,3,3] from(y)
}""",
        "is not one value for each of 3 channels",
    ),
    "a batch-norm in training mode stays": (
        "fold-batch-norm",
        """entry @f(%x: f32[1,4,4,2]) -> (y = %y) {
  %w = Const() {value=splat(f32[1,1,2,2], 0.5)} : f32[1,1,2,2] from(w)
  %one = Const() {value=splat(f32[2], 1.0)} : f32[2] from(one)
  %c = Conv2D(%x, %w) {padding="SAME", strides=[1, 1, 1, 1]} : f32[1,4,4,2] from(c)
  %y = FusedBatchNormV3(%c, %one, %one, %one, %one) : (f32[1,4,4,2], f32[2], f32[2], f32[2], f32[2], f32[?]) from(y)
}""",
        "",
    ),
    "a written variable stays": (
        "freeze-variables",
        """variable @w : f32[2] = tensor(f32[2], [1.0, 2.0])

entry @f(%x: f32[2]) -> (y = %r) {
  %h = Variable() {ref="w"} : resource<f32[2]>[] from(h)
  %a = AssignVariableOp(%h, %x) {dtype=f32} : () from(a)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r) after(%a)
}""",
        "'w' is written",
    ),
    "a noinline body stays a call": (
        "inline-calls",
        """entry @f(%x: f32[3]) -> (y = %c) {
  %c = Call(%x) {f=@g} : f32[3] from(c)
}
function @g(%a: f32[3]) -> (r = %r) {_noinline=true} {
  %r = Exp(%a) : f32[3] from(r)
}""",
        "is marked _noinline",
    ),
    "two unknown sizes are not one -1": (
        "resolve-shapes",
        """entry @f(%x: f32[b,n,4]) -> (y = %y) {
  %s = Shape(%x) : i32[3] from(s)
  %y = Reshape(%x, %s) : f32[b,n,4] from(y)
}""",
        "two or more dimensions",
    ),
    "there is nothing to fold with": (
        "fold-constants",
        """entry @f(%x: f32[]) -> (y = %y) {
  %a = Const() {value=tensor(f32[], 2.0)} : f32[] from(a)
  %b = Exp(%a) : f32[] from(b)
  %y = Mul(%x, %b) : f32[] from(y)
}""",
        "nothing to evaluate constants with",
    ),
    "float constants are not merged across operators": (
        "simplify,cse",
        """entry @f(%x: f32[]) -> (y = %y) {
  %one = Const() {value=tensor(f32[], 1.0)} : f32[] from(one)
  %eps = Const() {value=tensor(f32[], 1e-09)} : f32[] from(eps)
  %a = Sub(%one, %x) : f32[] from(a)
  %b = AddV2(%a, %eps) : f32[] from(b)
  %y = Log(%b) : f32[] from(y)
}""",
        "",
    ),
}


@pytest.mark.parametrize("case", REWRITES)
def test_rewrites(case: str) -> None:
    pipeline, before, after = REWRITES[case]
    assert_rewrites(HEAD + before, HEAD + after, pipeline)


@pytest.mark.parametrize("case", REFUSALS)
def test_refuses(case: str) -> None:
    pipeline, before, reason = REFUSALS[case]
    assert_refuses(HEAD + before, pipeline, reason)


@pytest.mark.tf
@pytest.mark.parametrize("case", REWRITES)
def test_both_sides_compute_the_same(case: str, run_module: RunModule) -> None:
    pipeline, before, _ = REWRITES[case]
    exact = pipeline.partition(",")[0] not in ("fold-transpose", "fold-batch-norm")
    assert_same_function(HEAD + before, run(HEAD + before, pipeline)[0], run_module, exact=exact)


BATCH_NORMS = {
    "scale and shift behind a convolution": """entry @f(%x: f32[2,4,4,2]) -> (y = %y) {
  %w = Const() {value=tensor(f32[1,1,2,3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[1,1,2,3] from(w)
  %b = Const() {value=tensor(f32[3], [0.5, -1.5, 2.5])} : f32[3] from(b)
  %s = Const() {value=tensor(f32[1,1,1,3], [0.5, 1.5, -2.5])} : f32[1,1,1,3] from(s)
  %t = Const() {value=tensor(f32[3], [3.0, 4.0, 5.0])} : f32[3] from(t)
  %c = Conv2D(%x, %w) {padding="SAME", strides=[1, 2, 2, 1]} : f32[2,2,2,3] from(c)
  %d = BiasAdd(%c, %b) : f32[2,2,2,3] from(d)
  %m = Mul(%d, %s) : f32[2,2,2,3] from(m)
  %y = AddV2(%t, %m) : f32[2,2,2,3] from(y)
}""",
    "a depthwise filter with multiplier 2": """entry @f(%x: f32[1,5,5,3]) -> (y = %y) {
  %w = Const() {value=tensor(f32[1,1,3,2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[1,1,3,2] from(w)
  %s = Const() {value=tensor(f32[6], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[6] from(s)
  %c = DepthwiseConv2dNative(%x, %w) {padding="SAME", strides=[1, 1, 1, 1]} : f32[1,5,5,6] from(c)
  %y = Mul(%c, %s) : f32[1,5,5,6] from(y)
}""",
    "a fused batch-norm with its own epsilon": """entry @f(%x: f32[2,4,4,2]) -> (y = %y) {
  %w = Const() {value=tensor(f32[1,1,2,2], [1.0, 2.0, 3.0, 4.0])} : f32[1,1,2,2] from(w)
  %s = Const() {value=tensor(f32[2], [0.5, 1.5])} : f32[2] from(s)
  %o = Const() {value=tensor(f32[2], [-1.0, 1.0])} : f32[2] from(o)
  %m = Const() {value=tensor(f32[2], [0.25, 0.75])} : f32[2] from(m)
  %v = Const() {value=tensor(f32[2], [0.05, 2.0])} : f32[2] from(v)
  %c = Conv2D(%x, %w) {padding="SAME", strides=[1, 1, 1, 1]} : f32[2,4,4,2] from(c)
  %y = FusedBatchNormV3(%c, %s, %o, %m, %v) {epsilon=0.01, is_training=false}
      : (f32[2,4,4,2], f32[2], f32[2], f32[2], f32[2], f32[?]) from(y)
}""",
    "a fused batch-norm behind a bias": """entry @f(%x: f32[2,4,4,2]) -> (y = %y) {
  %w = Const() {value=tensor(f32[1,1,2,2], [1.0, 2.0, 3.0, 4.0])} : f32[1,1,2,2] from(w)
  %b = Const() {value=tensor(f32[2], [1.5, -2.5])} : f32[2] from(b)
  %s = Const() {value=tensor(f32[2], [0.5, 1.5])} : f32[2] from(s)
  %o = Const() {value=tensor(f32[2], [-1.0, 1.0])} : f32[2] from(o)
  %m = Const() {value=tensor(f32[2], [0.25, 0.75])} : f32[2] from(m)
  %v = Const() {value=tensor(f32[2], [0.05, 2.0])} : f32[2] from(v)
  %c = Conv2D(%x, %w) {padding="SAME", strides=[1, 1, 1, 1]} : f32[2,4,4,2] from(c)
  %d = BiasAdd(%c, %b) : f32[2,4,4,2] from(d)
  %y = FusedBatchNormV3(%d, %s, %o, %m, %v) {is_training=false}
      : (f32[2,4,4,2], f32[2], f32[2], f32[2], f32[2], f32[?]) from(y)
}""",
    "a product whose weight is transposed": """entry @f(%x: f32[2,3]) -> (y = %y) {
  %w = Const() {value=tensor(f32[2,3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[2,3] from(w)
  %s = Const() {value=tensor(f32[2], [0.5, 1.5])} : f32[2] from(s)
  %c = MatMul(%x, %w) {transpose_b=true} : f32[2,2] from(c)
  %y = Mul(%c, %s) : f32[2,2] from(y)
}""",
    "a weight that someone else reads": """entry @f(%x: f32[2,3]) -> (y = %y, z = %z) {
  %w = Const() {value=tensor(f32[3,2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[3,2] from(w)
  %s = Const() {value=tensor(f32[2], [0.5, 1.5])} : f32[2] from(s)
  %c = MatMul(%x, %w) : f32[2,2] from(c)
  %y = Mul(%c, %s) : f32[2,2] from(y)
  %z = MatMul(%x, %w) : f32[2,2] from(z)
}""",
}


@pytest.mark.tf
@pytest.mark.parametrize("case", BATCH_NORMS)
def test_a_batch_norm_is_folded_right(case: str, run_module: RunModule) -> None:
    module, context = run(HEAD + BATCH_NORMS[case], "fold-batch-norm,dce")
    assert any("fold-batch-norm" in n.pass_name for n in context.notes if n.kind == "change")
    (graph,) = module.entries.values()
    assert not [n.op for n in graph if n.op == "FusedBatchNormV3"]
    assert_same_function(HEAD + BATCH_NORMS[case], module, run_module, exact=False)
