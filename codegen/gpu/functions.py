# SPDX-License-Identifier: Apache-2.0
"""The operations that have no operator or function of the same meaning in C: small functions
printed with the kernel.

What :mod:`tilewright.ir.expr` promises and C does not: integer division never traps, minima and
maxima pass NaN on, a cast from floating point saturates, division of indices rounds down. A
function is written once, for all types, with ``$T`` for the type of its operands, ``$U`` for an
unsigned type at least as wide as ``int``.
"""

from string import Template

from tilewright.codegen.gpu.dialect import Dialect
from tilewright.ir.dtypes import I64, INDEX, U32, U64, DType

_FLOAT = {
    "min": "($T x, $T y) { return x < y || x != x ? x : y; }",
    "max": "($T x, $T y) { return x > y || x != x ? x : y; }",
    "mod": (
        "($T x, $T y) {\n  $T r = fmod(x, y);\n  if (r == 0) return copysign(($T)0, y);\n"
        "  return (r < 0) != (y < 0) ? r + y : r;\n}"
    ),
    "sign": "($T x) { return x > 0 ? 1 : x < 0 ? -1 : x + 0; }",
    "sigmoid": "($T x) { return 1 / (1 + exp(-x)); }",
}
_SIGNED = {
    "min": "($T x, $T y) { return x < y ? x : y; }",
    "max": "($T x, $T y) { return x > y ? x : y; }",
    "div": "($T x, $T y) { return y == 0 ? 0 : y == -1 ? ($T)(0 - ($U)x) : x / y; }",
    "fmod": "($T x, $T y) { return y == 0 || y == -1 ? 0 : x % y; }",
    "mod": (
        "($T x, $T y) {\n  $T r = y == 0 || y == -1 ? 0 : x % y;\n"
        "  return r != 0 && (r < 0) != (y < 0) ? r + y : r;\n}"
    ),
    "abs": "($T x) { return x < 0 ? ($T)(0 - ($U)x) : x; }",
    "sign": "($T x) { return (x > 0) - (x < 0); }",
    "floordiv": "($T x, $T y) { return x / y - (x % y < 0); }",
    "floormod": "($T x, $T y) { $T r = x % y; return r < 0 ? r + y : r; }",
}
_UNSIGNED = {
    "min": _SIGNED["min"],
    "max": _SIGNED["max"],
    "div": "($T x, $T y) { return y == 0 ? 0 : x / y; }",
    "fmod": "($T x, $T y) { return y == 0 ? 0 : x % y; }",
    "mod": "($T x, $T y) { return y == 0 ? 0 : x % y; }",
    "abs": "($T x) { return x; }",
    "sign": "($T x) { return x > 0; }",
}


class Functions:
    """The functions that a kernel needs, in the order of their first use."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._printed: dict[str, str] = {}

    def call(self, name: str, dtype: DType, *args: str) -> str:
        """A call of the function ``name`` on operands of one type."""
        table = _FLOAT if dtype.is_float else _SIGNED if dtype.is_signed else _UNSIGNED
        full = f"tw_{name}_{I64 if dtype is INDEX else dtype}"
        self._define(full, table[name], dtype, dtype)
        return f"{full}({', '.join(args)})"

    def has(self, name: str, dtype: DType) -> bool:
        """True if an operation is one of these functions."""
        return name in (_FLOAT if dtype.is_float else _SIGNED)

    def saturate(self, x: str, source: DType, target: DType) -> str:
        """A cast from floating point to an integer: truncated, saturated, NaN to 0."""
        dialect, target = self._dialect, I64 if target is INDEX else target
        low, high = (dialect.literal(float(n), source) for n in (target.min, int(target.max) + 1))
        least, greatest = (dialect.integer(int(n), target) for n in (target.min, target.max))
        kind = dialect.type(target)
        body = (
            f"($T x) {{\n  return x != x ? 0 : x <= {low} ? {least} : x >= {high} ? {greatest}"
            f" : ({kind})x;\n}}"
        )
        full = f"tw_{source}_to_{target}"
        self._define(full, body, source, target)
        return f"{full}({x})"

    def _define(self, full: str, body: str, dtype: DType, result: DType) -> None:
        if full not in self._printed:
            words = {"T": self._dialect.type(dtype), "U": self.unsigned(dtype)}
            text = Template(body).substitute(words)
            self._printed[full] = (
                f"{self._dialect.function} {self._dialect.type(result)} {full}{text}"
            )

    def unsigned(self, dtype: DType) -> str:
        """The unsigned type in which arithmetic on integers of ``dtype`` wraps."""
        return self._dialect.type(U64 if dtype.bits == 64 else U32)

    def text(self) -> str:
        """The definitions."""
        return "".join(f"{f}\n" for f in self._printed.values())
