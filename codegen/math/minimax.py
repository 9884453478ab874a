# SPDX-License-Identifier: Apache-2.0
"""Minimax polynomials by Remez' exchange.

On a dense grid in extended precision (80 bits on x86-64), in the Chebyshev basis; the conversion to
powers is exact, in fractions. See Muller, Elementary Functions, chapter 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Extended = npt.NDArray[np.longdouble]
Function = Callable[[Extended], Extended]
GRID = 4000
PI = np.longdouble("3.14159265358979323846")


@dataclass(frozen=True)
class Fit:
    """Approximate ``function`` by a polynomial of ``degree`` in ``x - center`` on ``[low, high]``.

    The error counts ``weight`` times.
    """

    name: str
    function: Function
    weight: Function
    low: float
    high: float
    degree: dict[str, int]
    center: float = 0.0


def remez(fit: Fit, degree: int) -> tuple[list[Fraction], float]:
    """The coefficients in powers of ``x - center``, lowest first, and the greatest error."""
    tau = np.cos(np.linspace(0, 1, GRID, dtype=np.longdouble) * PI)
    low, high = np.longdouble(fit.low), np.longdouble(fit.high)
    x = (high + low) / 2 + tau * (high - low) / 2
    values, weights = fit.function(x), abs(fit.weight(x))
    basis = _chebyshev(tau, degree)
    # An equation at a point without weight would force the error to 0 everywhere.
    heavy = np.flatnonzero(weights > weights.max() * 1e-3)
    points = heavy[np.linspace(0, len(heavy) - 1, degree + 2).round().astype(int)]
    best: tuple[float, Extended] | None = None
    for _ in range(40):
        weight = weights[points]
        signs = np.where(np.arange(degree + 2) % 2, -1, 1).astype(np.longdouble)
        system = np.concatenate([basis[points] * weight[:, None], signs[:, None]], axis=1)
        solution = _solve(system, values[points] * weight)
        error = (values - basis @ solution[:-1]) * weights
        # Close to the precision of the arithmetic the exchange may wander off.
        if best is None or abs(error).max() < best[0]:
            best = float(abs(error).max()), solution
        renewed = _extrema(error, degree + 2)
        if len(renewed) < degree + 2 or np.array_equal(renewed, points):
            break
        points = renewed
    assert best is not None
    greatest, solution = best
    scaled = _powers([_fraction(c) for c in solution[:-1]])
    # tau = (u - shift) * scale with u = x - center.
    scale = 2 / (Fraction(fit.high) - Fraction(fit.low))
    shift = (Fraction(fit.high) + Fraction(fit.low)) / 2 - Fraction(fit.center)
    return _substituted(scaled, scale, shift), greatest


def _chebyshev(tau: Extended, degree: int) -> Extended:
    columns = [np.ones_like(tau), tau]
    for _ in range(degree - 1):
        columns.append(2 * tau * columns[-1] - columns[-2])
    return np.stack(columns[: degree + 1], axis=1)


def _solve(a: Extended, b: Extended) -> Extended:
    """Gaussian elimination with pivoting; numpy's solver rounds to doubles."""
    a, b = a.copy(), b.copy()
    n = len(b)
    for k in range(n):
        pivot = k + int(np.argmax(abs(a[k:, k])))
        a[[k, pivot]], b[[k, pivot]] = a[[pivot, k]], b[[pivot, k]]
        factors = a[k + 1 :, k] / a[k, k]
        a[k + 1 :] -= factors[:, None] * a[k]
        b[k + 1 :] -= factors * b[k]
    x = np.zeros_like(b)
    for k in range(n - 1, -1, -1):
        x[k] = (b[k] - (a[k, k + 1 :] * x[k + 1 :]).sum()) / a[k, k]
    return x


def _extrema(error: Extended, count: int) -> npt.NDArray[np.int64]:
    """Positions of ``count`` alternating extrema, the greatest included; fewer if there are not so
    many.
    """
    sign = np.sign(error)
    starts = np.flatnonzero(np.concatenate([[True], sign[1:] != sign[:-1]]))
    ends = np.append(starts[1:], len(error))
    peaks = [s + int(np.argmax(abs(error[s:e]))) for s, e in zip(starts, ends, strict=True)]
    while len(peaks) > count:
        sizes = [abs(error[p]) for p in peaks]
        least = int(np.argmin(sizes))
        if len(peaks) == count + 1 or least in (0, len(peaks) - 1):
            peaks.pop(0 if sizes[0] < sizes[-1] else -1)
        else:
            # An inner peak goes together with a neighbour, to keep the alternation.
            other = least - 1 if sizes[least - 1] < sizes[least + 1] else least
            del peaks[other : other + 2]
    return np.array(peaks)


def _fraction(v: np.longdouble) -> Fraction:
    head = float(v)
    return Fraction(head) + Fraction(float(v - np.longdouble(head)))


def _powers(chebyshev: list[Fraction]) -> list[Fraction]:
    """Chebyshev coefficients to powers, exactly."""
    n = len(chebyshev)
    before, now = [Fraction(1)], [Fraction(0), Fraction(1)]
    total = [Fraction(0)] * n
    for k, c in enumerate(chebyshev):
        if k >= 2:
            after = [Fraction(0)] + [2 * v for v in now]
            for i, v in enumerate(before):
                after[i] -= v
            before, now = now, after
        for i, v in enumerate(before if k == 0 else now):
            total[i] += c * v
    return total


def _substituted(powers: list[Fraction], scale: Fraction, shift: Fraction) -> list[Fraction]:
    """The polynomial in ``u`` of one in ``(u - shift) * scale``."""
    result = [Fraction(0)]
    for c in reversed(powers):
        longer = [Fraction(0)] * (len(result) + 1)
        for i, v in enumerate(result):
            longer[i + 1] += v * scale
            longer[i] -= v * scale * shift
        longer[0] += c
        result = longer
    return result[: len(powers)]
