# SPDX-License-Identifier: Apache-2.0
"""Sliding windows over spatial dims: what convolutions and pooling share.

A window of ``kernel`` elements, ``dilations`` apart, moves in ``strides`` over a dim with ``pads``
on both sides. Padding is a stage of its own that fills a larger buffer, so that the loops over
windows read without conditions; schedules decide where that buffer lives and how much of it exists
at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.bounds import known_le, upper
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import ZERO, Expr, Read, index
from tilewright.ir.op import Op, Requirement
from tilewright.ir.ops.domain import axes, scratch
from tilewright.ir.simplify import ceildiv, compare, floordiv, maximum, minimum
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.value_expr import guard, logical_and

# Attributes beyond this are refused: no model means them, and products of them must stay far from
# 2^63.
LIMIT = 1 << 31


@dataclass(frozen=True)
class Window:
    """The window along one spatial dim; ``begin`` and ``end`` are the pads, ``ceil`` lets the last
    one hang over.
    """

    kernel: Expr
    stride: int
    dilation: int
    begin: int
    end: int
    ceil: bool = False

    @property
    def reach(self) -> Expr:
        """How many elements a window spans."""
        return (self.kernel - 1) * self.dilation + 1

    def space(self, extent: Expr) -> Expr:
        """How many elements windows may span: the padded dim, and with ``ceil`` an overhang of less
        than a stride.
        """
        return extent + (self.begin + self.end + (self.stride - 1 if self.ceil else 0))

    def count(self, extent: Expr) -> Expr:
        """How many windows fit over a dim: the extent of the result; below 1 if none does."""
        moves = floordiv(self.space(extent) - self.reach, self.stride)
        if not self.ceil:
            return moves + 1
        # No window starts in the padding at the end.
        starts = ceildiv(extent + self.begin, self.stride)
        return minimum(moves + 1, starts)

    def padded(self, extent: Expr) -> Expr:
        """The extent of the padded dim, the overhang of a last window included."""
        plain = extent + (self.begin + self.end)
        if not self.ceil:
            return plain
        return maximum(plain, (self.count(extent) - 1) * self.stride + self.reach)

    def needs_padding(self, extent: Expr) -> bool:
        """True if windows may read outside the dim."""
        return self.padded(extent) is not extent


def check_windows(
    op: Op,
    rank: int,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    least_pad: int = 0,
) -> None:
    """Check the attributes of a sliding window over ``rank`` spatial dims: their lengths and their
    ranges.
    """
    op.require(rank >= 1, "The operand needs a batch dim, a channel dim and at least one more.")
    lengths = (("strides", strides, rank), ("pads", pads, 2 * rank), ("dilations", dilations, rank))
    for name, given, wanted in lengths:
        op.require(
            len(given) == wanted, f"'{name}' has {len(given)} values, {rank} dims need {wanted}."
        )
    for name, given, least in (
        ("strides", strides, 1),
        ("pads", pads, least_pad),
        ("dilations", dilations, 1),
    ):
        for value in given:
            op.require(
                least <= value < LIMIT,
                f"'{name}' holds {value}, it must be at least {least} and below {LIMIT}.",
            )


def check_fit(op: Op, windows: Sequence[Window], spatial: Sequence[Expr], fewest: int = 1) -> None:
    """Check that each dim, with its padding, may hold as many windows as there must be."""
    for position, (window, extent) in enumerate(zip(windows, spatial, strict=True)):
        op.require(
            upper(window.count(extent)) >= fewest,
            f"A window of {window.reach} elements does not fit spatial dim {position} of {extent} "
            f"with pads {window.begin} and {window.end}.",
        )


def fit_requirements(
    windows: Sequence[Window], spatial: Sequence[Expr], fewest: int = 1
) -> tuple[Requirement, ...]:
    """That each dim, with its padding, holds as many windows as there must be, where that is not
    known.
    """
    found: list[Requirement] = []
    for window, extent in zip(windows, spatial, strict=True):
        # A dim that is short of a window by less than a stride holds none.
        least = window.reach - (0 if fewest else window.stride)
        if not known_le(least, window.space(extent)):
            message = "A window of {0} elements does not fit a dim of {1}, its pads included."
            padded = extent + (window.begin + window.end)
            condition = compare("ge", window.space(extent), least)
            found.append((condition, message, (window.reach, padded)))
    return tuple(found)


def make_windows(
    kernel: Sequence[Expr | int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil: bool = False,
) -> tuple[Window, ...]:
    """One window for each spatial dim; ``pads`` holds all begins, then all ends."""
    rank = len(kernel)
    return tuple(
        Window(index(kernel[d]), strides[d], dilations[d], pads[d], pads[rank + d], ceil)
        for d in range(rank)
    )


def pad_stage(x: Buffer, windows: Sequence[Window], fill: Expr) -> tuple[Buffer, tuple[Stage, ...]]:
    """``x`` padded by ``fill`` as the windows need it, and the stage that does so; ``x`` itself if
    none is needed.
    """
    lead = x.rank - len(windows)
    spatial = x.shape[lead:]
    if not any(w.needs_padding(d) for w, d in zip(windows, spatial, strict=True)):
        return x, ()
    extents = (w.padded(d) for w, d in zip(windows, spatial, strict=True))
    return pad_to(x, (*x.shape[:lead], *extents), [0] * lead + [w.begin for w in windows], fill)


def pad_to(
    x: Buffer, shape: Sequence[Expr], begins: Sequence[Expr | int], fill: Expr
) -> tuple[Buffer, tuple[Stage, ...]]:
    """``x`` copied into a buffer of ``shape`` from ``begins`` on, with ``fill`` around it, and the
    stage that does so.
    """
    padded = scratch("padded", x.dtype, shape, x)
    point = axes("p", padded.shape)
    return padded, (map_stage("pad", point, padded, read_inside(x, point, begins, fill)),)


def read_inside(x: Buffer, point: Sequence[Expr], begins: Sequence[Expr | int], fill: Expr) -> Expr:
    """``x`` at ``point - begins`` where that is inside, else ``fill``."""
    source = tuple(p - b for p, b in zip(point, begins, strict=True))
    inside: list[Expr] = []
    for i, dim in zip(source, x.shape, strict=True):
        inside += [compare("ge", i, ZERO), compare("lt", i, dim)]
    return guard(logical_and(*inside), Read(x, source), fill)


def positions_inside(window: Window, start: Expr, least: Expr, end: Expr) -> Expr:
    """How many elements of the window that starts at ``start`` lie in ``[least, end)``."""
    first = ceildiv(maximum(ZERO, least - start), window.dilation)
    last = minimum(window.kernel, ceildiv(end - start, window.dilation))
    if known_le(first, last):
        return last - first
    return maximum(ZERO, last - first)
