# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Kernels for the tests of GPU code, as stages; and the kernels of the digit model."""

from importlib.resources import files

from tilewright.frontends import import_model
from tilewright.ir.graph import Module
from tilewright.ir.loop import Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.ops.group import Group
from tilewright.ir.target import parse_target
from tilewright.passes.lower.kernel import Lowered, lower_group, plain_body
from tilewright.passes.manager import PassContext, run_passes
from tilewright.pipeline import graph_passes

OPENCL = parse_target("opencl")

MATMUL = """
kernel @matmul(a: f32[m,k], b: f32[k,n], c: f32[n]) -> (y: f32[m,n]) {
  symbol m in [1, 100000]
  symbol k in [1, 100000]
  symbol n in [1, 100000]
  buffer p: f32[m,n] @workspace
  stage reduce product(i in m, j in n; r in k) -> p[i, j] : acc = f32(0.0) then (acc + (a[i, r] * b[r, j]))
  stage map bias(i2 in m, j2 in n) -> y[i2, j2] = max((p[i2, j2] + c[j2]), f32(0.0))
  block bias.map(0, 0) { y[0, 0] = f32(0.0) }
}
"""

OUTER_PRODUCT = """
kernel @outer(a: f32[m], b: f32[n]) -> (y: f32[m,n]) {
  symbol m in [1, 100000]
  symbol n in [1, 100000]
  stage reduce product(i in m, j in n) -> y[i, j] : acc = f32(0.0) then (acc + (a[i] * b[j]))
  block product.init(0, 0) { y[0, 0] = f32(0.0) }
}
"""

SOFTMAX = """
kernel @softmax(x: f32[m,n]) -> (y: f32[m,n]) {
  symbol m in [1, 100000]
  symbol n in [1, 100000]
  buffer t: f32[m] @workspace
  buffer e: f32[m,n] @workspace
  buffer s: f32[m] @workspace
  stage reduce top(i in m; j in n) -> t[i] : best = f32(-inf) then max(best, x[i, j])
  stage map power(i1 in m, j1 in n) -> e[i1, j1] = exp((x[i1, j1] - t[i1]))
  stage reduce total(i2 in m; j2 in n) -> s[i2] : acc = f32(0.0) then (acc + e[i2, j2])
  stage map share(i3 in m, j3 in n) -> y[i3, j3] = (e[i3, j3] / s[i3])
  block share.map(0, 0) { y[0, 0] = f32(0.0) }
}
"""

ARGMAX = """
kernel @argmax(x: f32[m,n]) -> (y: i64[m]) {
  symbol m in [1, 100000]
  symbol n in [1, 100000]
  buffer best: f32[m] @workspace
  stage reduce arg(i in m; j in n) -> best[i], y[i] : v = f32(-inf), at = i64(0) then select((x[i, j] > v), x[i, j], v), select((x[i, j] > v), cast(j, i64), at)
  block arg.init(0) { best[0] = f32(0.0) y[0] = i64(0) }
}
"""

GELU = """
kernel @gelu(x: f32[m,n], w: f32[n]) -> (y: f32[m,n]) {
  symbol m in [1, 100000]
  symbol n in [1, 100000]
  stage map gelu(i in m, j in n) -> y[i, j] = (((x[i, j] + w[j]) * f32(0.5)) * (f32(1.0) + erf(((x[i, j] + w[j]) * f32(0.7071067811865476)))))
  block gelu.map(0, 0) { y[0, 0] = f32(0.0) }
}
"""


def plain(text: str) -> Kernel:
    """The kernel with the plain nests of its stages."""
    kernel = parse_kernel(text)
    return kernel.with_body(plain_body(kernel.stages, kernel.outputs))


def digit_model() -> tuple[Module, list[Lowered]]:
    """The model that ships with the project, up to its kernels."""
    module = import_model(str(files("tilewright") / "data" / "digits.onnx"))
    run_passes(module, graph_passes(), PassContext(OPENCL, "default", frozenset()), [])
    groups = [n for n in module.graph.nodes if isinstance(n.op, Group)]
    return module, [lower_group(n, module.constants) for n in groups]
