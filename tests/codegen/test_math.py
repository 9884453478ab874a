# SPDX-License-Identifier: Apache-2.0
"""The math library: errors in ULP over the whole range, special values, monotony, and where its
numbers come from.
"""

import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elementwise_kernel import elementwise

from benchmarks.math_accuracy import BEGIN, END, REFERENCES, SPECIAL, sweep, ulps
from tests.targets import runnable_targets
from tilewright.codegen.math import derive
from tilewright.codegen.math.coefficients import COEFFICIENTS
from tilewright.codegen.math.minimax import Fit, _extrema, remez
from tilewright.codegen.math.trigonometric import pi_fraction, two_over_pi_words
from tilewright.ir.dtypes import BF16, F16, F32, F64, DType
from tilewright.ir.expr import MATH_FUNCTIONS, Call
from tilewright.ir.target import Target

TARGETS = runnable_targets()
BOUND = {F32: 2.0, F64: 4.0}
ODD = ("expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf")


def unary(function: str, dtype: DType) -> Any:
    """A kernel that applies a function to every element."""
    name = f"{function}_{dtype}"
    return elementwise(name, (dtype,), lambda x: {"y": Call(function, (x,), dtype)})


def evaluate(
    run: Any, function: str, x: np.ndarray, dtype: DType, target: Target = TARGETS[0]
) -> np.ndarray:
    y = np.zeros_like(x)
    run(unary(function, dtype), [x, y], [len(x)], target)
    return y


def test_every_function_has_a_reference() -> None:
    assert set(MATH_FUNCTIONS) == set(REFERENCES) | {"pow", "fma"}


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("function", REFERENCES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_error_over_the_whole_range(run: Any, function: str, dtype: DType) -> None:
    x = sweep(dtype, 40000)
    if function == "erf":
        # Its reference is a long series.
        x = np.concatenate([x[::5], x[-len(SPECIAL) :]])
    exact = REFERENCES[function](x.astype(np.longdouble))
    for target in TARGETS:
        error = ulps(evaluate(run, function, x, dtype, target), exact)
        worst = int(np.argmax(error))
        assert error[worst] <= BOUND[dtype], f"{function}({x[worst]!r}) is {error[worst]} ULP off."


@pytest.mark.parametrize(
    "function", ["exp", "exp2", "tanh", "sigmoid", "erf", "log", "expm1", "log1p"]
)
def test_monotone(run: Any, function: str) -> None:
    """Over consecutive numbers at many places, the seams between methods included. Without fused
    multiply-add each result is rounded more often, and may fall by the last bit.
    """
    starts = [-103.9, -87.4, -17.6, -9.0, -4.0, -1.0, -0.6326, -0.35, -1e-3, 1e-30, 1e-4, 0.34657,
              0.5, 0.6324, 0.66665, 0.99, 0.9999, 1.333, 2.0, 3.99, 8.9, 9.01, 17.0]  # fmt: skip
    for start in starts:
        if (start < 0 and function == "log") or (start <= -1 and function == "log1p"):
            continue
        x = np.float32(start) + np.arange(6000) * np.spacing(np.float32(start), dtype=np.float32)
        x = np.unique(x.astype(np.float32))
        for target in TARGETS:
            y = evaluate(run, function, x, F32, target)
            fall = 0.0 if target.has_fma else np.spacing(np.abs(y[1:]))
            assert (np.diff(y) >= -fall).all(), f"{function} falls near {start} for {target}."


def test_zeros_keep_their_sign(run: Any) -> None:
    x = np.array([-0.0, 0.0], np.float32)
    for function in ODD:
        assert np.signbit(evaluate(run, function, x, F32)).tolist() == [True, False], function


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_power(run: Any, dtype: DType) -> None:
    rng = np.random.default_rng(7)
    special = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e30, -1e-30,
               2.5, -2.5, 1e-42, -1e-42, 4.0, 16777217.0, 9007199254740993.0]  # fmt: skip
    a, b = np.meshgrid(special, special)
    n = 8000
    x = np.concatenate([np.exp(rng.uniform(-85, 85, n)), rng.uniform(0.9, 1.1, n),
                        rng.uniform(0, 10, n), -rng.uniform(0, 10, n), a.ravel()])  # fmt: skip
    y = np.concatenate([rng.uniform(-1.2, 1.2, n), rng.uniform(-900, 900, n),
                        rng.uniform(-40, 40, n), rng.integers(-20, 20, n), b.ravel()])  # fmt: skip
    x, y = x.astype(dtype.numpy), y.astype(dtype.numpy)
    exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    kernel = elementwise(
        f"pow_{dtype}", (dtype, dtype), lambda x, y: {"z": Call("pow", (x, y), dtype)}
    )
    for target in TARGETS:
        z = np.zeros_like(x)
        run(kernel, [x, y, z], [len(x)], target)
        error = ulps(z, exact)
        worst = int(np.argmax(error))
        assert error[worst] <= BOUND[dtype], (x[worst], y[worst], z[worst], error[worst])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_half_precision_is_rounded_once_more(run: Any, dtype: DType) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    for function in ("exp", "tanh", "log", "sin"):
        y = evaluate(run, function, x, dtype).astype(np.float64)
        exact = REFERENCES[function](x.astype(np.longdouble)).astype(np.float64)
        rounded = exact.astype(dtype.numpy).astype(np.float64)
        finite = np.isfinite(rounded)
        assert np.array_equal(np.isnan(y), np.isnan(rounded))
        unit = np.maximum(abs(rounded) * 2.0 ** (-10 if dtype is F16 else -7), 2.0**-24)
        assert (abs(y - exact)[finite] <= 0.51 * unit[finite]).all(), function


def test_scalar_and_vector_code_agree(run: Any) -> None:
    """A kernel's tail and its body give the same bits: one description serves both."""
    x = np.random.default_rng(2).uniform(-20, 20, 64).astype(np.float32)
    for function in ("exp", "sin", "erf"):
        whole = evaluate(run, function, x, F32)
        assert all(evaluate(run, function, x[i : i + 1], F32)[0] == whole[i] for i in range(9))


def test_two_over_pi() -> None:
    words = two_over_pi_words(20)
    assert words[0] == 0xA2F9836E4E441529 and words[1] == 0xFC2757D1F534DDC0
    assert abs(float(pi_fraction(200)) - np.pi) < 1e-15


@pytest.mark.parametrize(
    ("heights", "count", "kept"),
    [
        ((3, -2, 4), 3, (3, -2, 4)),
        ((3, -2), 3, (3, -2)),
        ((1, -2, 4), 2, (-2, 4)),
        ((3, -2, 1), 2, (3, -2)),
        ((1, -2, 4, -3), 2, (4, -3)),
        ((5, -1, 2, -4, 3), 3, (5, -4, 3)),
        ((5, -2, 1, -4, 3), 3, (5, -4, 3)),
    ],
)
def test_extrema_of_an_error(
    heights: tuple[float, ...], count: int, kept: tuple[float, ...]
) -> None:
    """The least go, and with an inner one its lesser neighbour: what is left alternates."""
    error = np.repeat(np.array(heights, np.longdouble), 3) * ([0.5, 1.0, 0.25] * len(heights))

    def too_long(number: int, frame: object) -> None:
        raise AssertionError("Peaks are dropped without end.")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(10)
    try:
        found = _extrema(error, count)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert tuple(error[found]) == kept


@pytest.mark.parametrize("name", ["EXP", "SIN", "ERFC_LOG2"])
def test_coefficients_are_what_the_derivation_gives(name: str) -> None:
    for fit in derive.FITS:
        for element, degree in fit.degree.items():
            if fit.name == name and element == "float":
                powers, error = remez(fit, degree)
                assert COEFFICIENTS[name, element] == tuple(
                    float(np.float32(float(c))) for c in powers
                )
                assert error < 1e-8


@pytest.mark.parametrize("fit", derive.FITS, ids=lambda fit: f"{fit.name}-{'-'.join(fit.degree)}")
def test_polynomials_are_near_what_they_stand_for(fit: Fit) -> None:
    """The weighted error is a part of the last bit, or of that of float32 where that is enough."""
    x = np.linspace(np.longdouble(fit.low), np.longdouble(fit.high), 300)[1:]
    for element in fit.degree:
        found = np.zeros_like(x)
        for coefficient in reversed(COEFFICIENTS[fit.name, element]):
            found = found * (x - fit.center) + np.longdouble(coefficient)
        error = np.abs((found - fit.function(x)) * fit.weight(x)).max()
        single = element == "float" or fit.name in ("LOG_POWER", "EXP2_POWER", "TAN")
        assert error < (1e-7 if single else 1e-15), (element, error)


def test_the_page_lists_every_function_within_its_bound() -> None:
    page = (Path(__file__).parents[2] / "docs" / "math.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (.*) \|$", page.split(BEGIN)[1].split(END)[0], re.MULTILINE)
    measured = {
        name: [float(x) for x in cells.split(" | ")] for name, cells in rows if name in REFERENCES
    }
    assert measured.keys() == REFERENCES.keys()
    for errors in measured.values():
        assert max(errors[:2]) <= BOUND[F32] and max(errors[2:4]) <= BOUND[F64]
