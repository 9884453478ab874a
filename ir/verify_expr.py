# SPDX-License-Identifier: Apache-2.0
"""What makes an expression well typed; the verifiers of stages and statements ask here."""

from tilewright.ir.dtypes import BOOL, INDEX
from tilewright.ir.expr import (
    BINARY_OPS,
    COMPARE_OPS,
    MATH_FUNCTIONS,
    UNARY_OPS,
    Binary,
    Call,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Poly,
    Read,
    Select,
    Unary,
    children,
    walk,
)

_BITS = ("and", "or", "xor")
_SHIFTS = ("shl", "shr")


def type_fault(e: Expr) -> str | None:
    """A sentence on the first part of ``e`` that is not well typed; None if all are."""
    for node in walk(e):
        fault = _fault(node)
        if fault is not None:
            return f"'{node}': {fault}"
    return None


def _fault(e: Expr) -> str | None:
    match e:
        case Poly() | IndexOp() | Read():
            if any(c.dtype is not INDEX for c in children(e)):
                return "It holds a value where an index expression is needed."
            if isinstance(e, IndexOp) and e.op in ("floordiv", "mod"):
                is_wrong = isinstance(e.b, Const) and int(e.b.literal) <= 0
                return "The divisor is not positive." if is_wrong else None
            return None
        case Unary(op, x, dtype):
            return _unary_fault(op, x, dtype is (BOOL if op in ("isnan", "isinf") else x.dtype))
        case Binary(op, x, y, dtype):
            if op not in BINARY_OPS:
                return f"There is no operation '{op}'."
            if not x.dtype is y.dtype is dtype or dtype is INDEX:
                return f"Operands are of types {x.dtype} and {y.dtype}, the result is {dtype}."
            if dtype.is_bool and op not in _BITS:
                return f"'{op}' is not for bool."
            if dtype.is_float and op in (*_BITS, *_SHIFTS):
                return f"'{op}' is not for floats."
            return None
        case Compare(op, x, y):
            if op not in COMPARE_OPS:
                return f"There is no comparison '{op}'."
            return _same(x, y)
        case Select(condition, x, y) | Guard(condition, x, y):
            if condition.dtype is not BOOL:
                return f"The condition is of type {condition.dtype}."
            return _same(x, y)
        case Call(function, args, dtype):
            if function not in MATH_FUNCTIONS:
                return f"There is no function '{function}'."
            if len(args) != {"pow": 2, "fma": 3}.get(function, 1):
                return f"'{function}' has {len(args)} arguments."
            if not dtype.is_float or any(a.dtype is not dtype for a in args):
                return "A function of the math library takes and gives one float type."
    return None


def _unary_fault(op: str, x: Expr, result_fits: bool) -> str | None:
    if op not in UNARY_OPS:
        return f"There is no operation '{op}'."
    if not result_fits or x.dtype is INDEX:
        return f"The operand is of type {x.dtype}, which does not fit the result."
    if (op == "not") is not x.dtype.is_bool and op in ("not", "neg", "abs", "sign"):
        return f"'{op}' is not for {x.dtype}."
    if op in ("isnan", "isinf") and not x.dtype.is_float:
        return f"'{op}' is for floats."
    return None


def _same(x: Expr, y: Expr) -> str | None:
    if x.dtype is not y.dtype:
        return f"Operands are of types {x.dtype} and {y.dtype}."
    return None
