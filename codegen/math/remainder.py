# SPDX-License-Identifier: Apache-2.0
"""The exact floating-point remainder (C's fmod) without a library.

Where the quotient is below 2^29 a float32 remainder is exact in double precision: ``x -
trunc(x/y)*y`` with a correction by one ``y``. All else goes lane by lane through long division of
the significands in integers, at most 40 bits of the quotient a step (float32) or 11 (double).
"""

from tilewright.codegen.llvm.builder import Block, Builder, Module, Value, constant


def fmod(b: Builder, x: Value, y: Value) -> Value:
    """``x - y*trunc(x/y)``, exact, with the sign of ``x``; NaN for an infinite ``x`` or a zero
    ``y``.
    """
    slow = _define_slow(b.module, x.element)
    if x.element == "double":
        lanes = [
            b.call(slow, "double", 0, (b.extract(x, i), b.extract(y, i)))
            for i in range(x.lanes or 1)
        ]
        return b.gather_lanes(lanes) if x.lanes else lanes[0]
    wide_x = b.intrinsic("fabs", b.convert("fpext", x, "double"))
    wide_y = b.intrinsic("fabs", b.convert("fpext", y, "double"))
    quotient = b.div(wide_x, wide_y)
    near = b.compare("olt", quotient, b.like(2.0**29, quotient))
    integer = b.convert("fptosi", b.select(near, quotient, b.like(0.0, quotient)), "i32")
    whole = b.convert("sitofp", integer, "double")
    rest = b.sub(wide_x, b.mul(whole, wide_y))
    rest = b.select(b.compare("olt", rest, b.like(0.0, rest)), b.add(rest, wide_y), rest)
    rest = b.select(b.compare("oge", rest, wide_y), b.sub(rest, wide_y), rest)
    # An infinite divisor leaves x; 0 * infinity made a NaN of it.
    infinite = b.compare("oeq", wide_y, b.like(float("inf"), wide_y))
    rest = b.select(infinite, wide_x, rest)
    fast = b.intrinsic("copysign", b.convert("fptrunc", rest, "float"), x)
    return _with_slow_lanes(b, slow, near, fast, x, y)


def _with_slow_lanes(b: Builder, slow: str, near: Value, fast: Value, x: Value, y: Value) -> Value:
    """Lanes that are not ``near`` are computed one by one, in a branch hardly ever taken."""
    far = b.op("xor", near, b.like(True, near))
    before = b.block
    rare, done = b.new_block("fmod.far"), b.new_block("fmod.done")
    condition = b.any_lane(far)
    b.branch_if(condition, rare, done)
    b.enter(rare)
    lanes = [
        b.call(slow, x.element, 0, (b.extract(x, i), b.extract(y, i))) for i in range(x.lanes or 1)
    ]
    exact = b.gather_lanes(lanes) if x.lanes else lanes[0]
    b.branch(done)
    b.enter(done)
    return b.phi([(fast, before), (exact, rare)])


def _define_slow(module: Module, element: str) -> str:
    """The scalar function for any operands."""
    name = f"tw.fmod.{element}"
    if not module.define_once(name):
        return name
    b = Builder(module)
    double = element == "double"
    integer, mantissa, step = ("i64", 52, 11) if double else ("i32", 23, 40)
    x, y = Value("%x", element), Value("%y", element)
    top = (2047 << 52) if double else (255 << 23)
    positive = (1 << (63 if double else 31)) - 1
    bits_x = b.op("and", b.bitcast(x, integer), constant(positive, integer))
    bits_y = b.op("and", b.bitcast(y, integer), constant(positive, integer))
    bad = b.op(
        "or",
        b.compare("uge", bits_x, constant(top, integer)),
        b.compare("ugt", bits_y, constant(top, integer)),
    )
    bad = b.op("or", bad, b.compare("eq", bits_y, constant(0, integer)))
    small = b.compare("ult", bits_x, bits_y)
    invalid, check, unchanged, start = (b.new_block(n) for n in ("bad", "check", "same", "start"))
    b.branch_if(bad, invalid, check)
    b.enter(invalid)
    product = b.mul(x, y)
    b.ret(b.div(product, product))
    b.enter(check)
    b.branch_if(small, unchanged, start)
    b.enter(unchanged)
    b.ret(x)
    b.enter(start)
    significand_x, exponent_x = _unpack(b, bits_x, mantissa)
    significand_y, exponent_y = _unpack(b, bits_y, mantissa)
    rest = _long_division(b, significand_x, significand_y, b.sub(exponent_x, exponent_y), step)
    _return_packed(b, rest, exponent_y, x, mantissa)
    module.functions.append(
        f"define internal {element} @{name}({element} %x, {element} %y) noinline nounwind "
        f'memory(none) "no-builtins" {{\n{b.body()}\n}}'
    )
    return name


def _unpack(b: Builder, bits: Value, mantissa: int) -> tuple[Value, Value]:
    """Significand and biased exponent as i64; those of a subnormal share the least exponent."""
    wide = bits if bits.element == "i64" else b.convert("zext", bits, "i64")
    exponent = b.op("lshr", wide, b.like(mantissa, wide))
    fraction = b.op("and", wide, b.like((1 << mantissa) - 1, wide))
    normal = b.compare("ne", exponent, b.like(0, exponent))
    significand = b.select(normal, b.op("or", fraction, b.like(1 << mantissa, wide)), fraction)
    return significand, b.select(normal, exponent, b.like(1, exponent))


def _long_division(b: Builder, x: Value, y: Value, distance: Value, step: int) -> Value:
    """``(x << distance) mod y`` by shifts of at most ``step`` bits."""
    first = b.op("urem", x, y)
    entry = b.block
    loop, body, done = b.new_block("loop"), b.new_block("body"), b.new_block("done")
    b.branch(loop)
    b.enter(loop)
    rest, left = Value(b.name(), "i64"), Value(b.name(), "i64")
    header = loop
    more = b.compare("sgt", left, constant(0, "i64"))
    b.branch_if(more, body, done)
    b.enter(body)
    count = b.intrinsic("smin", left, constant(step, "i64"))
    following = b.op("urem", b.op("shl", rest, count), y)
    remaining = b.sub(left, count)
    b.branch(loop)
    header.lines[:0] = [
        _phi(rest, [(first, entry), (following, body)]),
        _phi(left, [(distance, entry), (remaining, body)]),
    ]
    b.enter(done)
    return rest


def _phi(result: Value, incoming: list[tuple[Value, Block]]) -> str:
    pairs = ", ".join(f"[ {v.text}, %{block.label} ]" for v, block in incoming)
    return f"  {result.text} = phi {result.type} {pairs}"


def _return_packed(b: Builder, rest: Value, exponent: Value, x: Value, mantissa: int) -> None:
    """The number ``rest * 2^exponent`` with the sign of ``x``; ``rest`` is normalised first."""
    zeros = Value(b.name(), "i64")
    b.module.declare("llvm.ctlz.i64", "i64", ["i64", "i1"])
    b.block.lines.append(f"  {zeros.text} = call i64 @llvm.ctlz.i64(i64 {rest.text}, i1 false)")
    wanted = b.sub(zeros, constant(63 - mantissa, "i64"))
    room = b.sub(exponent, constant(1, "i64"))
    shift = b.intrinsic("smin", wanted, room)
    significand = b.op("shl", rest, shift)
    biased = b.sub(exponent, shift)
    implicit = b.op("and", b.op("lshr", significand, constant(mantissa, "i64")), constant(1, "i64"))
    fraction = b.op("and", significand, constant((1 << mantissa) - 1, "i64"))
    stored = b.op("shl", b.mul(biased, implicit), constant(mantissa, "i64"))
    bits = b.op("or", stored, fraction)
    if x.element == "float":
        bits = b.convert("trunc", bits, "i32")
    b.ret(b.intrinsic("copysign", b.bitcast(bits, x.element), x))
