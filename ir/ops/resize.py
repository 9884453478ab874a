# SPDX-License-Identifier: Apache-2.0
"""Resizing by interpolation: nearest, linear or cubic, axis by axis.

Where an element of the result lies in the operand is an exact rational number, ``numerator /
denominator`` of index arithmetic, also for symbolic dims: nearest needs no floating point, and
weights are rounded once. A scale given as a float stands for the simplest fraction that rounds to
it, so that 0.333... is a third.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tilewright.ir.bounds import known_equal, known_le
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    DType,
    from_numpy,
)
from tilewright.ir.expr import (
    ONE,
    ZERO,
    Expr,
    Read,
    Scalar,
    Symbol,
    Unary,
    Var,
    binary,
    const,
    index,
    terms_of,
)
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.cast import truncated
from tilewright.ir.ops.domain import (
    NUMERIC_OR_BOOL,
    accumulator_dtype,
    axes,
    clamped,
    read_clamped,
    scratch,
)
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.interpolation import (
    cubic_weights,
    kernel_expression,
    kernel_radius,
    kernel_weight,
    taps_on_one_side,
)
from tilewright.ir.ops.shapes import check_dims, disjunction, expect_dtype, static_dims
from tilewright.ir.simplify import ceildiv, compare, floordiv, maximum, minimum, mod
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast, logical_and, select

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

_N = Symbol("N", 1, 64, 1, 5)
# Scales beyond this would overflow exact index arithmetic.
_LARGEST_SCALE = 1 << 16


@dataclass(frozen=True)
class Resize(Op):
    """``x`` resized to ``shape``. ``scales`` (empty, or one for each axis, None for that of the
    dims) give the exact ratio where the dims were rounded. ``roi``, all starts then all ends as
    fractions of the dims, is the part that ``tf_crop_and_resize`` maps to the result; outside of
    ``x`` that has the value ``extrapolation``.
    """

    name = "resize"
    shape: tuple[Expr, ...]
    mode: str = "nearest"
    coordinate: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    scales: tuple[float | None, ...] = ()
    cubic_coeff: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: tuple[float, ...] = ()
    extrapolation: float = 0.0

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        expect_dtype(self, [x.dtype], NUMERIC_OR_BOOL)
        self.require(
            x.dtype is not BOOL or self.mode == "nearest", f"Mode '{self.mode}' cannot mix bools."
        )
        for word, given, known in (
            ("Mode", self.mode, MODES),
            ("Coordinate transformation", self.coordinate, COORDINATES),
            ("Rounding", self.rounding, ROUNDINGS),
        ):
            self.require(
                given in known, f"{word} '{given}' is unknown; it is one of {', '.join(known)}."
            )
        for name, length, wanted in (
            ("shape", len(self.shape), x.rank),
            ("scales", len(self.scales) or x.rank, x.rank),
            ("roi", len(self.roi), 2 * x.rank if self.coordinate == "tf_crop_and_resize" else 0),
        ):
            self.require(length == wanted, f"'{name}' has {length} values, {x} needs {wanted}.")
        check_dims(self, self.shape)
        for scale in self.scales:
            self.require(
                scale is None or 1 / _LARGEST_SCALE <= scale <= _LARGEST_SCALE,
                f"A scale of {scale} is not between 1/{_LARGEST_SCALE} and {_LARGEST_SCALE}.",
            )
        for bound in self.roi:
            self.require(abs(bound) <= 1024, f"'roi' holds {bound}, a fraction of a dim is needed.")
        return (tensor(x.dtype, self.shape),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        for dim, extent in zip(operands[0].shape, self.shape, strict=True):
            if not known_le(ONE, dim) and not known_equal(dim, extent):
                condition = disjunction([compare("ge", dim, ONE), compare("eq", extent, ZERO)])
                found.append((condition, "An empty dim cannot be resized to {0}.", (extent,)))
        return tuple(found)

    # --- where elements come from ---

    def scale(self, axis: int) -> float | None:
        """The given scale of an axis."""
        return self.scales[axis] if self.scales else None

    def resized(self, shape: Sequence[Expr]) -> list[int]:
        """The axes that are interpolated; along others the result is the operand."""
        return [
            a
            for a, d in enumerate(shape)
            if self.coordinate == "tf_crop_and_resize"
            or known_equal(d, self.shape[a]) is not True
            or self.scale(a) not in (None, 1.0)
        ]

    def ratio(self, axis: int, dim: Expr) -> Fraction | None:
        """Extent of the result by that of the operand; None if it is not a number, or 0."""
        scale = self.scale(axis)
        return _proportion(self.shape[axis], dim) if scale is None else simplest_fraction(scale)

    def steps(self, axis: int, dim: Expr) -> tuple[Expr, Expr]:
        """p and q, where one step in the operand is p / q steps in the result."""
        ratio = self.ratio(axis, dim)
        if ratio is not None:
            return index(ratio.numerator), index(ratio.denominator)
        # An extent of 0 has no elements, and must not become a divisor.
        return maximum(self.shape[axis], ONE), dim

    def position(self, axis: int, dim: Expr, i: Expr) -> tuple[Expr, Expr]:
        """Where element ``i`` of the result lies along an axis of extent ``dim``: numerator and
        denominator.
        """
        extent = self.shape[axis]
        p, q = self.steps(axis, dim)
        several = minimum(extent - 1, ONE)
        match self.coordinate:
            case "asymmetric":
                return i * q, p
            case "tf_half_pixel_for_nn":
                return (i * 2 + 1) * q, p * 2
            case "align_corners":
                return i * (dim - 1), maximum(extent - 1, ONE)
            case "half_pixel_symmetric":
                return dim * p - extent * q + (i * 2 + 1) * q - p, p * 2
            case "tf_crop_and_resize":
                start, end = (simplest_fraction(f) for f in self.roi[axis :: len(self.shape)])
                unit = start.denominator * end.denominator
                a, b = index(int(start * unit)), index(int(end * unit))
                spread = (a * (extent - 1) + i * (b - a)) * (dim - 1) * 2
                single = (ONE - several) * (a + b) * (dim - 1)
                return spread + single, maximum(extent - 1, ONE) * (2 * unit)
        half_pixel = (i * 2 + 1) * q - p
        if self.coordinate == "pytorch_half_pixel":
            half_pixel = half_pixel * several
        return half_pixel, p * 2

    def nearest(self, numerator: Expr, denominator: Expr) -> Expr:
        """The index next to a position, not clamped."""
        match self.rounding:
            case "floor":
                return floordiv(numerator, denominator)
            case "ceil":
                return ceildiv(numerator, denominator)
            case "round_prefer_ceil":
                return floordiv(numerator * 2 + denominator, denominator * 2)
        return ceildiv(numerator * 2 - denominator, denominator * 2)

    # --- the two computations ---

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        shape = static_dims(self, self.shape)
        y = widened(x)
        outside = np.zeros((1,) * x.ndim, np.bool_)
        if x.size == 0 or 0 in shape:
            return (np.zeros(shape, x.dtype),)
        dims = [index(d) for d in x.shape]
        for axis in self.resized(dims):
            column = [-1 if a == axis else 1 for a in range(x.ndim)]
            places, weights, beyond = self._taps(axis, x.shape[axis], shape[axis])
            outside = outside | beyond.reshape(column)
            parts = [np.take(y, p, axis=axis) for p in places.T]
            if self.mode == "nearest":
                (y,) = parts
            else:
                y = sum(p * w.reshape(column) for p, w in zip(parts, weights.T, strict=True))
        if self.coordinate == "tf_crop_and_resize":
            y = np.where(outside, self._beyond(from_numpy(x.dtype)), y)
        if x.dtype.kind in "iu" and y.dtype.kind == "f":
            y = truncated(np.rint(y), from_numpy(x.dtype))
        return (y.astype(x.dtype),)

    def _taps(self, axis: int, dim: int, extent: int) -> tuple[Array, Array, Array]:
        """For each element of the result along one axis: the elements it is mixed from, their
        weights, and whether it lies outside of the operand.
        """
        places: list[list[int]] = []
        weights: list[list[float]] = []
        outside: list[bool] = []
        ratio = self.ratio(axis, index(dim))
        assert ratio is not None
        for i in range(extent):
            numerator, denominator = (
                int(str(e)) for e in self.position(axis, index(dim), index(i))
            )
            where = Fraction(numerator, denominator)
            outside.append(where < 0 or where > dim - 1)
            if self.mode == "nearest":
                place = self.nearest(index(numerator), index(denominator))
                places.append([int(str(place))])
                weights.append([1.0])
                continue
            first = numerator // denominator
            shrink = min(float(ratio), 1.0) if self.antialias else 1.0
            reach = taps_on_one_side(self.mode, ratio if self.antialias else Fraction(1))
            taps = range(first - reach + 1, first + reach + 1)
            given = [
                kernel_weight(self.mode, (t - float(where)) * shrink, self.cubic_coeff)
                for t in taps
            ]
            if self.exclude_outside:
                given = [w if 0 <= t < dim else 0.0 for t, w in zip(taps, given, strict=True)]
            places.append(list(taps))
            weights.append([w / sum(given) for w in given])
        return np.clip(places, 0, dim - 1), np.array(weights), np.array(outside)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        resized = self.resized(x.shape)
        if self.mode == "nearest" or not resized:
            return (self._nearest_stage(x, result, resized),)
        stages: list[Stage] = []
        source = x
        dtype = accumulator_dtype(x.dtype)
        if not dtype.is_float:
            dtype = F32 if dtype.bits < 32 else F64
        for axis in resized:
            shape = [self.shape[a] if a == axis else d for a, d in enumerate(source.shape)]
            target = scratch(f"resized{axis}", dtype, shape, x)
            stages += self._axis_stages(axis, source, target)
            source = target
        point = axes("o", result.shape)
        mixed: Expr = Read(source, point)
        if not result.dtype.is_float:
            mixed = Unary("round", mixed, dtype)
        value = self._extrapolated(point, x, cast(mixed, result.dtype), resized)
        return (*stages, map_stage("finish", point, result, value))

    def _nearest_stage(self, x: Buffer, result: Buffer, resized: Sequence[int]) -> Stage:
        point = axes("o", result.shape)
        source: list[Expr] = list(point)
        for axis in resized:
            source[axis] = self.nearest(*self.position(axis, x.shape[axis], point[axis]))
        value = self._extrapolated(point, x, read_clamped(x, source), resized)
        return map_stage(self.name, point, result, value)

    def _extrapolated(
        self, point: Sequence[Expr], x: Buffer, value: Expr, resized: Sequence[int]
    ) -> Expr:
        """``value``, or the extrapolation value where the point lies outside of ``x``."""
        if self.coordinate != "tf_crop_and_resize":
            return value
        inside: list[Expr] = []
        for axis in resized:
            numerator, denominator = self.position(axis, x.shape[axis], point[axis])
            end = (x.shape[axis] - 1) * denominator
            inside += [compare("ge", numerator, ZERO), compare("le", numerator, end)]
        outside = const(self._beyond(value.dtype), value.dtype)
        return select(logical_and(*inside), value, outside)

    def _beyond(self, dtype: DType) -> float:
        """The extrapolation value as an element: integers round and saturate."""
        if dtype.is_float:
            return self.extrapolation
        return min(max(round(self.extrapolation), int(dtype.min)), int(dtype.max))

    def _axis_stages(self, axis: int, x: Buffer, result: Buffer) -> tuple[Stage, ...]:
        """Interpolation along one axis."""
        point = axes(f"a{axis}_", result.shape)
        dim, dtype = x.shape[axis], result.dtype
        numerator, denominator = self.position(axis, dim, point[axis])
        first = floordiv(numerator, denominator)
        fraction = binary("div", cast(mod(numerator, denominator), dtype), cast(denominator, dtype))

        def tap(place: Expr) -> Expr:
            at = tuple(place if a == axis else v for a, v in enumerate(point))
            return cast(read_clamped(x, at), dtype)

        if self.antialias:
            return self._antialias_stages(axis, x, result, first, fraction)
        one = const(1, dtype)
        if self.mode == "linear":
            value = tap(first) * (one - fraction) + tap(first + 1) * fraction
            return (map_stage(f"interpolate{axis}", point, result, value),)
        weights = cubic_weights(fraction, self.cubic_coeff)
        places = [first + (t - 1) for t in range(4)]
        if self.exclude_outside:
            weights = [
                select(_inside(p, dim), w, const(0, dtype))
                for p, w in zip(places, weights, strict=True)
            ]
        value = _sum([tap(p) * w for p, w in zip(places, weights, strict=True)])
        if self.exclude_outside:
            value = binary("div", value, _sum(weights))
        return (map_stage(f"interpolate{axis}", point, result, value),)

    def _antialias_stages(
        self, axis: int, x: Buffer, result: Buffer, first: Expr, fraction: Expr
    ) -> tuple[Stage, ...]:
        """A weighted mean over as many elements as one of the result covers."""
        point = axes(f"a{axis}_", result.shape)
        dim, dtype = x.shape[axis], result.dtype
        p, q = self.steps(axis, dim)
        reach = ceildiv(maximum(p, q) * kernel_radius(self.mode), p)
        t = Var(f"t{axis}", reach * 2)
        place = first + t - (reach - 1)
        distance = cast(t - (reach - 1), dtype) - fraction
        shrunk = distance * binary("div", cast(minimum(p, q), dtype), cast(q, dtype))
        weight = kernel_expression(self.mode, shrunk, self.cubic_coeff)
        if self.exclude_outside:
            weight = select(_inside(place, dim), weight, const(0, dtype))
        at = tuple(clamped(place, dim) if a == axis else v for a, v in enumerate(point))
        total, mass = Scalar("total", dtype), Scalar("mass", dtype)
        buffers = tuple(
            scratch(f"{name}{axis}", dtype, result.shape, result) for name in ("totals", "masses")
        )
        zero = const(0, dtype)
        value = cast(read_clamped(x, at), dtype) * weight
        reduction = reduce_stage(
            f"weigh{axis}",
            point,
            (t,),
            buffers,
            (total, mass),
            (zero, zero),
            (total + value, mass + weight),
        )
        end = axes(f"b{axis}_", result.shape)
        quotient = binary("div", Read(buffers[0], end), Read(buffers[1], end))
        return reduction, map_stage(f"interpolate{axis}", end, result, quotient)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def shape(*dims: Expr | int) -> tuple[Expr, ...]:
            return tuple(map(index, dims))

        x = tensor(F32, (1, 2, 4, 5))
        for coordinate in COORDINATES[:-1]:
            for rounding in ROUNDINGS:
                yield Sample(cls(shape(1, 2, 7, 3), "nearest", coordinate, rounding), (x,))
            for mode in ("linear", "cubic"):
                yield Sample(cls(shape(1, 2, 7, 3), mode, coordinate), (x,))
                yield Sample(cls(shape(1, 2, 1, 10), mode, coordinate), (x,))
        scales = (1.0, 1.0, 1.6, 0.6)
        for op in (
            cls(shape(1, 2, 6, 3), "linear", "half_pixel_symmetric", scales=scales),
            cls(shape(1, 2, 6, 3), "cubic", scales=scales, exclude_outside=True),
            cls(shape(1, 2, 6, 3), "linear", scales=scales, antialias=True),
            cls(shape(1, 2, 6, 3), "cubic", scales=scales, antialias=True),
            cls(shape(1, 2, 6, 2), "cubic", cubic_coeff=-0.5, antialias=True, exclude_outside=True),
        ):
            yield Sample(op, (x,))
        roi = (0.0, 0.0, 0.4, -0.2, 1.0, 1.0, 0.6, 1.4)
        for mode in MODES:
            crop = cls(shape(1, 2, 3, 4), mode, "tf_crop_and_resize", roi=roi, extrapolation=10.0)
            yield Sample(crop, (x,))
        for dtype in (F64, F16, BF16, I32):
            yield Sample(cls(shape(3, 7), "linear"), (tensor(dtype, (2, 4)),))
        yield Sample(cls(shape(3, 7), "linear"), (tensor(I64, (2, 4)),), "integers")
        for dtype in (U8, I8, U16, I16):
            for op in (
                cls(shape(3, 8), "linear"),
                cls(shape(3, 8), "cubic"),
                cls(
                    shape(2, 8), "cubic", "tf_crop_and_resize", roi=(0, -1, 1, 2), extrapolation=9.7
                ),
                cls(shape(1, 2), "linear", scales=(0.5, 0.5), antialias=True),
            ):
                yield Sample(op, (tensor(dtype, (2, 4)),), "special")
        yield Sample(cls(shape(4, 2), "nearest"), (tensor(BOOL, (2, 4)),), "bool")
        yield Sample(
            cls(shape(_N * 2, 3), "nearest", "asymmetric", "floor"), (tensor(F32, (_N, 3)),)
        )
        yield Sample(cls(shape(_N + 1, 3), "linear"), (tensor(F32, (_N, 3)),))
        yield Sample(cls(shape(6, 3), "linear", "align_corners"), (tensor(F32, (_N, 3)),))
        for mode in ("linear", "cubic"):
            yield Sample(cls(shape(2, 3), mode, antialias=True), (tensor(F32, (_N, 3)),))
        yield Sample(cls(shape(_N * 2, 3), "linear"), (tensor(F32, (_N, 3)),))


def simplest_fraction(value: float) -> Fraction:
    """The fraction of small terms that rounds to ``value`` in f32, if there is one, else a close
    one.
    """
    simple = Fraction(value).limit_denominator(4096)
    if np.float32(float(simple)) == np.float32(value):
        return simple
    return Fraction(value).limit_denominator(1 << 20)


def _proportion(extent: Expr, dim: Expr) -> Fraction | None:
    """How many times ``dim`` an extent is, if that is one positive number for all symbols."""
    shares, terms = dict(terms_of(extent)), dict(terms_of(dim))
    if shares.keys() != terms.keys():
        return None
    found = {Fraction(share, terms[m]) for m, share in shares.items()}
    return found.pop() if len(found) == 1 and min(found) > 0 else None


def _inside(place: Expr, dim: Expr) -> Expr:
    return logical_and(compare("ge", place, ZERO), compare("lt", place, dim))


def _sum(terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
