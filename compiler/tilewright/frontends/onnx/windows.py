# SPDX-License-Identifier: Apache-2.0
"""The attributes that convolutions and pools share: kernel, strides, dilations, pads, and
``auto_pad``.

Lengths and signs are checked here, before any arithmetic on them. Where SAME padding of a symbolic
dim depends on the dim, the input is padded by a node of its own and the window gets none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.ir import simplify
from tilewright.ir.expr import ZERO, Const, Expr, add, index, mul, sub
from tilewright.ir.graph import Value

_MODES = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
LARGEST = (1 << 31) - 1
"""Of kernels, strides and the like: no model means more, and products of them stay below 2^63."""


@dataclass(frozen=True)
class WindowAttributes:
    """``pads`` are all begins, then all ends; None stands for SAME padding, which depends on the
    input. ``ceil`` lets the last window of a pool hang over.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...] | None
    mode: str
    ceil: bool

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def reach(self, axis: int) -> int:
        """The extent that one window covers along a spatial axis."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1


def read_windows(ctx: NodeContext, kernel: Sequence[int]) -> WindowAttributes:
    """The checked attributes of a node whose kernel has these spatial extents."""
    rank = len(kernel)
    strides = _list(ctx, "strides", rank, 1)
    dilations = _list(ctx, "dilations", rank, 1)
    ctx.require(
        all(0 < k <= LARGEST for k in kernel),
        f"Its kernel {list(kernel)} must have dims from 1 to {LARGEST}.",
    )
    mode = ctx.attributes.choice("auto_pad", _MODES, "NOTSET")
    pads: tuple[int, ...] | None = (0,) * (2 * rank)
    if mode == "NOTSET":
        pads = tuple(ctx.attributes.integers("pads") or pads or ())
        ctx.require(
            len(pads) == 2 * rank and all(abs(p) <= LARGEST for p in pads),
            f"Its pads {list(pads)} must be {2 * rank} numbers from {-LARGEST} to {LARGEST}.",
        )
    elif mode != "VALID":
        pads = None
    # The formulas for automatic pads round alike in both modes.
    ceil = bool(ctx.attributes.integer("ceil_mode", 0)) and mode == "NOTSET"
    return WindowAttributes(tuple(kernel), strides, dilations, pads, mode, ceil)


def _list(ctx: NodeContext, name: str, rank: int, least: int) -> tuple[int, ...]:
    given = ctx.attributes.integers(name)
    found = tuple(given) if given else (1,) * rank
    ctx.require(
        len(found) == rank and all(least <= x <= LARGEST for x in found),
        f"Its {name} {list(found)} must be {rank} numbers from {least} to {LARGEST}.",
    )
    return found


def spatial_kernel(ctx: NodeContext, weight: Value) -> tuple[int, ...]:
    """The spatial extents of a convolution's weight; the kernel_shape attribute must agree."""
    ctx.require(
        weight.type.rank >= 3, f"Its weight has rank {weight.type.rank}; at least 3 is needed."
    )
    dims = weight.type.shape[2:]
    if not all(isinstance(d, Const) for d in dims):
        ctx.needs_sizes("kernel", *dims)
    kernel = tuple(int(str(d)) for d in dims)
    given = ctx.attributes.integers("kernel_shape")
    ctx.require(
        not given or tuple(given) == kernel,
        f"Its kernel_shape is {given} but its weight has the extents {list(kernel)}.",
    )
    return kernel


def with_pads(
    ctx: NodeContext, x: Value, windows: WindowAttributes, fill: Any
) -> tuple[Value, tuple[int, ...]]:
    """The input, and the pads of its windows; padded here with ``fill`` where the pads are symbolic
    or negative.
    """
    ctx.require(
        x.type.rank == windows.rank + 2,
        f"Its input has rank {x.type.rank}, but a kernel of {windows.rank} dims needs "
        f"{windows.rank + 2}.",
    )
    pads = [index(p) for p in windows.pads] if windows.pads is not None else _same_pads(x, windows)
    if all(isinstance(p, Const) and int(p.literal) >= 0 for p in pads):
        return x, tuple(int(str(p)) for p in pads)
    rank = windows.rank
    begins, ends = [ZERO, ZERO, *pads[:rank]], [ZERO, ZERO, *pads[rank:]]
    return compose.pad(ctx, x, begins, ends, fill), (0,) * (2 * rank)


def _same_pads(x: Value, windows: WindowAttributes) -> list[Expr]:
    """Pads such that the output has ``ceil(n / stride)`` elements; the odd one goes to the end
    (UPPER) or the beginning.
    """
    begins: list[Expr] = []
    ends: list[Expr] = []
    for axis, extent in enumerate(x.type.shape[2:]):
        stride = windows.strides[axis]
        last = mul(sub(simplify.ceildiv(extent, stride), 1), stride)
        total = simplify.maximum(sub(add(last, index(windows.reach(axis))), extent), 0)
        half = simplify.floordiv(total, 2)
        rest = sub(total, half)
        begins.append(half if windows.mode == "SAME_UPPER" else rest)
        ends.append(rest if windows.mode == "SAME_UPPER" else half)
    return begins + ends
