# SPDX-License-Identifier: Apache-2.0
"""The scalar semantics of value expressions, on LLVM values with any number of lanes.

What :mod:`tilewright.ir.expr` promises: integers wrap, integer division truncates and never traps
(by zero it gives 0), shifts are modulo the width, float to integer saturates and maps NaN to 0,
minimum and maximum propagate NaN. No fast-math flag but ``contract`` on sums and products, and that
only where the target fuses them. Nothing here becomes a library call: rounding has a path of its
own where the processor lacks the instruction.
"""

from tilewright.codegen.llvm.builder import Builder, Value, constant, element_bits, vector_type
from tilewright.codegen.llvm.small_floats import FORMATS, narrow, round_to
from tilewright.codegen.math.remainder import fmod
from tilewright.ir.dtypes import F64, DType
from tilewright.ir.errors import CodegenError

_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INFIX = {"add": "add", "sub": "sub", "mul": "mul"}
_BITWISE = ("and", "or", "xor")


def ssa_element(dtype: DType) -> str:
    """The LLVM type in which values of ``dtype`` are computed; CodegenError for complex and
    string.
    """
    if dtype.is_float:
        return "double" if dtype is F64 else "float"
    if dtype.is_bool:
        return "i1"
    if dtype.is_integer:
        return f"i{dtype.bits}"
    raise _uncomputable(
        f"Values of type '{dtype}' cannot be computed by generated code. "
        "Split complex numbers into their parts."
    )


def _uncomputable(reason: str) -> CodegenError:
    """The error for values that no instruction computes, which a model may ask for."""
    return CodegenError(reason, reason=reason)


def rounded(b: Builder, x: Value, dtype: DType) -> Value:
    """The result of an operation computed in float32, rounded to ``dtype``."""
    return round_to(b, x, dtype) if dtype in FORMATS else x


def has_rounding(b: Builder) -> bool:
    """True if floor, ceil, trunc and round are instructions."""
    return b.target.arch == "aarch64" or "sse4.1" in b.target.features


def round_integral(b: Builder, op: str, x: Value) -> Value:
    """``floor``, ``ceil``, ``trunc`` or ``round`` (half to even), without a library call on any
    target.
    """
    name = {"round": "roundeven"}.get(op, op)
    if has_rounding(b):
        return b.intrinsic(name, x)
    # Adding and subtracting 2^52 (2^23) leaves the nearest integer; larger numbers are integers.
    absolute = b.intrinsic("fabs", x)
    limit = b.like(2.0 ** (52 if x.element == "double" else 23), x)
    near = b.sub(b.add(absolute, limit), limit)
    one, zero = b.like(1.0, x), b.like(0.0, x)
    if op == "trunc":
        near = b.sub(near, b.select(b.compare("ogt", near, absolute), one, zero))
    near = b.intrinsic("copysign", near, x)
    if op == "floor":
        near = b.sub(near, b.select(b.compare("ogt", near, x), one, zero))
    elif op == "ceil":
        near = b.add(near, b.select(b.compare("olt", near, x), one, zero))
    signed = b.intrinsic("copysign", near, x)
    return b.select(b.compare("olt", absolute, limit), signed, x)


# --- binary ---------------------------------------------------------------------------------------


def binary(b: Builder, op: str, x: Value, y: Value, dtype: DType) -> Value:
    """One of ``BINARY_OPS`` on two values of ``dtype``."""
    ssa_element(dtype)
    x, y = b.matched(x, y)
    if dtype.is_float:
        return _float_binary(b, op, x, y, dtype)
    if dtype.is_bool:
        return _bool_binary(b, op, x, y)
    if op in _INFIX or op in _BITWISE:
        return b.op(op, x, y)
    if op in ("min", "max"):
        return b.intrinsic(("s" if dtype.is_signed else "u") + op, x, y)
    if op in ("shl", "shr"):
        count = b.op("and", y, b.like(dtype.bits - 1, y))
        instruction = "shl" if op == "shl" else "ashr" if dtype.is_signed else "lshr"
        return b.op(instruction, x, count)
    if op in ("div", "mod", "fmod"):
        return _integer_division(b, op, x, y, dtype)
    raise _uncomputable(f"Operation '{op}' has no code for type '{dtype}'.")


def _bool_binary(b: Builder, op: str, x: Value, y: Value) -> Value:
    instruction = {"add": "or", "max": "or", "mul": "and", "min": "and", "ne": "xor"}.get(op, op)
    if instruction not in _BITWISE:
        raise _uncomputable(f"Operation '{op}' has no code for type 'bool'.")
    return b.op(instruction, x, y)


def _float_binary(b: Builder, op: str, x: Value, y: Value, dtype: DType) -> Value:
    if op in _INFIX:
        contract = " contract" if b.contracts else ""
        return rounded(b, b.op(f"f{op}{contract}", x, y), dtype)
    if op == "div":
        return rounded(b, b.div(x, y), dtype)
    if op in ("min", "max"):
        return float_extreme(b, op, x, y)
    if op == "fmod":
        return rounded(b, fmod(b, x, y), dtype)
    if op == "mod":
        remainder = fmod(b, x, y)
        zero = b.like(0.0, x)
        differ = b.op("xor", b.compare("olt", remainder, zero), b.compare("olt", y, zero))
        wrong = b.op("and", differ, b.compare("une", remainder, zero))
        moved = b.select(wrong, b.add(remainder, y), remainder)
        signed = b.select(
            b.compare("oeq", remainder, zero), b.intrinsic("copysign", zero, y), moved
        )
        return rounded(b, signed, dtype)
    raise _uncomputable(f"Operation '{op}' has no code for type '{dtype}'.")


def float_extreme(b: Builder, op: str, x: Value, y: Value) -> Value:
    """The minimum or maximum; NaN if either operand is. With a constant operand it is one
    instruction.
    """
    if x.is_constant and not y.is_constant:
        x, y = y, x
    # False only where y is better or, unless it is a constant, NaN: that is what maxps and minps
    # do.
    better = b.compare("uge" if op == "max" else "ule", x, y)
    result = b.select(better, x, y)
    if y.is_constant and "poison" not in y.text and not _is_nan_literal(y):
        return result
    return b.select(b.compare("uno", y, y), y, result)


def _is_nan_literal(v: Value) -> bool:
    bits = v.text.rpartition("0x")[2].rstrip(")")
    return len(bits) == 16 and int(bits, 16) & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000


def _integer_division(b: Builder, op: str, x: Value, y: Value, dtype: DType) -> Value:
    zero, one = b.like(0, x), b.like(1, x)
    by_zero = b.compare("eq", y, zero)
    if not dtype.is_signed:
        safe = b.select(by_zero, one, y)
        if op == "div":
            return b.select(by_zero, zero, b.op("udiv", x, safe))
        return b.op("urem", x, safe)
    lowest = b.like(-(1 << (dtype.bits - 1)), x)
    overflow = b.op("and", b.compare("eq", x, lowest), b.compare("eq", y, b.like(-1, y)))
    safe = b.select(b.op("or", by_zero, overflow), one, y)
    if op == "div":
        return b.select(by_zero, zero, b.op("sdiv", x, safe))
    remainder = b.op("srem", x, safe)
    if op == "fmod":
        return remainder
    differ = b.compare("slt", b.op("xor", remainder, safe), zero)
    wrong = b.op("and", differ, b.compare("ne", remainder, zero))
    return b.select(wrong, b.op("add", remainder, safe), remainder)


# --- unary, comparisons ---------------------------------------------------------------------------


def unary(b: Builder, op: str, x: Value, source: DType) -> Value:
    """One of ``UNARY_OPS`` on a value of type ``source``."""
    ssa_element(source)
    if source.is_float:
        return _float_unary(b, op, x)
    if op in ("not", "bitwise_not"):
        return b.op("xor", x, b.like(True if source.is_bool else -1, x))
    if op in ("isnan", "isinf"):
        return constant(False, "i1", x.lanes)
    if op in ("ceil", "floor", "round", "trunc"):
        return x
    if source.is_bool:
        raise _uncomputable(f"Operation '{op}' has no code for type 'bool'.")
    zero = b.like(0, x)
    if op == "neg":
        return b.op("sub", zero, x)
    if op == "abs":
        negative = b.compare("slt", x, zero)
        return b.select(negative, b.op("sub", zero, x), x) if source.is_signed else x
    if op == "sign":
        positive = b.convert(
            "zext", b.compare("sgt" if source.is_signed else "ne", x, zero), x.element
        )
        if not source.is_signed:
            return positive
        return b.op("sub", positive, b.convert("zext", b.compare("slt", x, zero), x.element))
    raise _uncomputable(f"Operation '{op}' has no code for type '{source}'.")


def _float_unary(b: Builder, op: str, x: Value) -> Value:
    zero = b.like(0.0, x)
    match op:
        case "neg":
            return b.neg(x)
        case "abs":
            return b.intrinsic("fabs", x)
        case "ceil" | "floor" | "round" | "trunc":
            return round_integral(b, op, x)
        case "isnan":
            return b.compare("uno", x, x)
        case "isinf":
            return b.compare("oeq", b.intrinsic("fabs", x), b.like(float("inf"), x))
        case "sign":
            positive = b.select(b.compare("ogt", x, zero), b.like(1.0, x), b.add(x, zero))
            return b.select(b.compare("olt", x, zero), b.like(-1.0, x), positive)
    raise _uncomputable(f"Operation '{op}' has no code for floating-point values.")


def compare(b: Builder, op: str, x: Value, y: Value, dtype: DType) -> Value:
    """One of ``COMPARE_OPS`` on two values of ``dtype``."""
    ssa_element(dtype)
    if dtype.is_float:
        return b.compare(_FLOAT_PREDICATES[op], x, y)
    if op in ("eq", "ne"):
        return b.compare(op, x, y)
    signed = dtype.is_signed and not dtype.is_bool
    return b.compare(("s" if signed else "u") + op, x, y)


# --- conversions ----------------------------------------------------------------------------------


def cast(b: Builder, x: Value, source: DType, target: DType) -> Value:
    """A conversion between any two types that :func:`ssa_element` knows."""
    if source is target:
        return x
    ssa_element(source)
    element = ssa_element(target)
    if target.is_bool:
        return b.compare("une" if source.is_float else "ne", x, b.like(0, x))
    if target.is_float:
        return _to_float(b, x, source, target)
    if source.is_float:
        return _saturated(b, x, element, target.is_signed)
    if x.bits > element_bits(element):
        return b.convert("trunc", x, element)
    if x.element == element:
        return x
    return b.convert("sext" if source.is_signed and not source.is_bool else "zext", x, element)


def _to_float(b: Builder, x: Value, source: DType, target: DType) -> Value:
    element = ssa_element(target)
    if not source.is_float:
        signed = source.is_signed and not source.is_bool
        return rounded(b, b.convert("sitofp" if signed else "uitofp", x, element), target)
    if target is F64:
        return b.convert("fpext", x, "double")
    if target in FORMATS:
        return narrow(b, x, target)
    return b.convert("fptrunc", x, "float") if x.element == "double" else x


def _saturated(b: Builder, x: Value, element: str, signed: bool) -> Value:
    name = "fptosi" if signed else "fptoui"
    kinds = [element, {"float": "f32", "double": "f64"}[x.element]]
    prefix = f"v{x.lanes}" if x.lanes else ""
    full = f"llvm.{name}.sat." + ".".join(prefix + k for k in kinds)
    result = vector_type(element, x.lanes)
    b.module.declare(full, result, [x.type])
    return b.emit(f"call {result} @{full}({x})", element, x.lanes)
