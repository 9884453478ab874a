# SPDX-License-Identifier: Apache-2.0
"""Kernels that apply expressions to every element, in vectors with a masked tail."""

from collections.abc import Callable

from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import DType
from tilewright.ir.expr import Expr, Read, Symbol, Var, index
from tilewright.ir.loop import For, If, Kernel, Store, seq
from tilewright.ir.simplify import ceildiv, compare
from tilewright.ir.types import tensor


def elementwise(
    name: str, sources: tuple[DType, ...], values: Callable[..., dict[str, Expr]]
) -> Kernel:
    """A kernel ``out[i] = value(x0[i], ...)`` for several values, on 8 lanes with a masked tail."""
    n = Symbol("n", 0)
    inputs = tuple(buffer(f"x{i}", tensor(t, (n,))) for i, t in enumerate(sources))
    o, v = Var("o", ceildiv(n, 8)), Var("v", index(8))
    i = o * 8 + v
    computed = values(*(Read(x, (i,)) for x in inputs))
    outputs = {k: buffer(k, tensor(e.dtype, (n,))) for k, e in computed.items()}
    stores = seq(Store(outputs[k], (i,), e) for k, e in computed.items())
    body = For(o, "serial", For(v, "vectorized", If(compare("lt", i, n), stores)))
    return Kernel(name, inputs, tuple(outputs.values()), (n,), (), body)
