# SPDX-License-Identifier: Apache-2.0
"""Derives the polynomials of the math library: ``python -m tilewright.codegen.math.derive`` prints
``coefficients.py``.

Each entry of ``FITS`` names a function, the weight of its error and the interval. The weight makes
the error relative to the result of the library's function, not to the polynomial.
"""

import sys

import numpy as np

from tilewright.codegen.math.minimax import PI, Extended, Fit, Function, remez

LN2 = np.log(np.longdouble(2))


def _series(x: Extended, coefficients: list[np.longdouble]) -> Extended:
    total = np.zeros_like(x)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def _expm1_tail(x: Extended) -> Extended:
    """``(exp(x) - 1 - x) / x^2``, by its series near 0."""
    series: Extended = np.zeros_like(x)
    for k in range(24, 1, -1):
        series = series * x / np.longdouble(k + 1) + 1
    return series / 2


def _log1p_tail(f: Extended) -> Extended:
    """``(log(1+f) - f + f^2/2) / f^3``."""
    near = abs(f) < 0.02
    safe = np.where(near, np.longdouble(0.1), f)
    series = _series(-f, [1 / np.longdouble(k + 3) for k in range(12)])
    tail: Extended = (np.log1p(safe) - safe + safe * safe / 2) / safe**3
    return np.where(near, series, tail)


def _exp2_tail(r: Extended) -> Extended:
    """``(2^r - 1) / r``."""
    quotient: Extended = np.expm1(r * LN2) / np.where(r == 0, 1, r)
    return np.where(abs(r) < 1e-12, LN2, quotient)


def _odd(function: Function) -> Function:
    """For ``function(x) = x + x^3 P(x^2)``: the P, as a function of ``z = x^2``."""

    def tail(z: Extended) -> Extended:
        x = np.sqrt(np.maximum(z, np.longdouble(1e-9)))
        quotient: Extended = (function(x) - x) / x**3
        return quotient

    return tail


def _odd_weight(function: Function) -> Function:
    def weight(z: Extended) -> Extended:
        x = np.sqrt(np.maximum(z, np.longdouble(1e-9)))
        return x**3 / function(x)

    return weight


def _cos_tail(z: Extended) -> Extended:
    """``(cos(x) - 1 + x^2/2) / x^4`` by its series."""
    series = np.zeros_like(z)
    for k in range(14, 1, -1):
        series = 1 - series * z / np.longdouble((2 * k + 1) * (2 * k + 2))
    return series / 24


def _log_tail(z: Extended) -> Extended:
    """R(z) of ``log((1+s)/(1-s)) = 2s + s*R(s^2)``, without the factor z."""
    return _series(z, [2 / np.longdouble(2 * k + 3) for k in range(30)])


def _log_third(z: Extended) -> Extended:
    """As :func:`_log_tail`, after its first term 2/3."""
    return _series(z, [2 / np.longdouble(2 * k + 5) for k in range(30)])


def erf(x: Extended) -> Extended:
    """The error function by its series of positive terms."""
    term = x.copy()
    total = x.copy()
    for k in range(1, 220):
        term = term * (2 * x * x) / np.longdouble(2 * k + 1)
        total = total + term
    scaled: Extended = total * np.exp(-x * x) * 2 / np.sqrt(PI)
    return scaled


def erfc(x: Extended) -> Extended:
    """The complement for ``x >= 0``; by a continued fraction above 2."""
    fraction = np.zeros_like(x)
    for k in range(400, 0, -1):
        fraction = np.longdouble(k) / 2 / (np.maximum(x, 1) + fraction)
    far: Extended = np.exp(-x * x) / np.sqrt(PI) / (np.maximum(x, 1) + fraction)
    return np.where(x < 2, 1 - erf(np.minimum(x, 2)), far)


def _log2_erfc(x: Extended) -> Extended:
    logarithm: Extended = np.log(erfc(x)) / LN2
    return logarithm


def _erf_near(z: Extended) -> Extended:
    """``erf(x)/x`` as a function of ``z = x^2``, minus 1."""
    x = np.sqrt(np.maximum(z, np.longdouble(1e-30)))
    return erf(x) / x - 1


def _erf_near_weight(z: Extended) -> Extended:
    return 1 / (_erf_near(z) + 1)


def _erf_far_weight(x: Extended) -> Extended:
    return erfc(x) / erf(x)


R = 0.34657359027997264 * 1.01
EIGHTH = 0.41421356237309503 * 1.001
QUARTER = (0.7853981633974483 * 1.001) ** 2

FITS = [
    # exp(r) = 1 + r + r^2 P(r), and the same for expm1.
    Fit("EXP", _expm1_tail, lambda r: r**2 / np.exp(r), -R, R, {"float": 4, "double": 9}),
    Fit("EXPM1", _expm1_tail, lambda r: r**2 / np.where(r == 0, 1, np.expm1(r)), -R, R,
        {"float": 5, "double": 10}),
    # 2^r = 1 + r P(r), for powers.
    Fit("EXP2", _exp2_tail, lambda r: r * np.exp(-r * LN2), -0.5, 0.5, {"double": 10}),
    # log(1+f) = f - f^2/2 + f^3 P(f).
    Fit("LOG1P", _log1p_tail, lambda f: f**3 / np.where(f == 0, 1, np.log1p(f)), -0.34, 0.34,
        {"float": 8}),
    # log((1+s)/(1-s)) = 2s + s z P(z), z = s^2.
    Fit("LOG", _log_tail, lambda z: z / 2, 0.0, 0.0295, {"double": 6}),
    # ... = 2s + s z (2/3 + z P(z)), with a margin for powers.
    Fit("LOG_TAIL", _log_third, lambda z: z**2 / 2, 0.0, 0.0295, {"double": 7}),
    # Enough for a float32 power.
    Fit("LOG_POWER", _log_tail, lambda z: z / 2, 0.0, 0.0295, {"double": 3}),
    Fit("EXP2_POWER", _exp2_tail, lambda r: r * np.exp(-r * LN2), -0.5, 0.5, {"double": 6}),
    Fit("SIN", _odd(np.sin), _odd_weight(np.sin), 0.0, QUARTER, {"float": 2, "double": 5}),
    Fit("COS", _cos_tail, lambda z: z**2 / np.cos(np.sqrt(z)), 0.0, QUARTER,
        {"float": 2, "double": 5}),
    # Enough for a float32 tangent.
    Fit("TAN", _odd(np.tan), _odd_weight(np.tan), 0.0, QUARTER, {"double": 6}),
    Fit("ASIN", _odd(np.arcsin), _odd_weight(np.arcsin), 0.0, 0.3026, {"float": 5, "double": 13}),
    Fit("ATAN", _odd(np.arctan), _odd_weight(np.arctan), 0.0, EIGHTH**2, {"double": 10}),
    Fit("ATAN", _odd(np.arctan), _odd_weight(np.arctan), 0.0, 1.0, {"float": 8}),
    Fit("SINH", _odd(np.sinh), _odd_weight(np.sinh), 0.0, 1.0, {"float": 3, "double": 7}),
    Fit("TANH", _odd(np.tanh), _odd_weight(np.tanh), 0.0, 0.4, {"float": 5, "double": 11}),
    Fit("ERF", _erf_near, _erf_near_weight, 0.0, 1.0, {"float": 6, "double": 12}),
    # log2(erfc(x)) = P(x - center), and a power of 2 of which a fifth is subtracted from 1.
    Fit("EXP2_ERF", _exp2_tail, lambda r: r * np.exp(-r * LN2), -0.5, 0.5,
        {"float": 4, "double": 10}),
    Fit("ERFC_LOG2", _log2_erfc, _erf_far_weight, 0.99, 4.0, {"float": 8}, 1.0),
    Fit("ERFC_LOG2", _log2_erfc, _erf_far_weight, 0.99, 6.0, {"double": 17}, 1.0),
]  # fmt: skip


def main() -> None:
    """Print the module of coefficients."""
    out = sys.stdout
    out.write("# SPDX-License-Identifier: Apache-2.0\n")
    out.write(
        '"""Minimax polynomials, lowest power first: what ``codegen.math.derive`` prints."""\n\n'
    )
    out.write("COEFFICIENTS: dict[tuple[str, str], tuple[float, ...]] = {\n")
    for fit in FITS:
        for element, degree in fit.degree.items():
            powers, error = remez(fit, degree)
            out.write(f"    # Weighted error {error:.2e}.\n")
            out.write(f'    ("{fit.name}", "{element}"): (\n')
            for c in powers:
                value = float(np.float32(float(c))) if element == "float" else float(c)
                out.write(f"        {value!r},\n")
            out.write("    ),\n")
    out.write("}\n")


if __name__ == "__main__":
    main()
