# SPDX-License-Identifier: Apache-2.0
"""sin, cos and tan, exact in their argument over the whole range.

The argument is reduced to ``r = x - n*pi/2``, ``|r| <= pi/4``. Small ones by Cody and Waite's
method in double precision, pi/2 in three parts whose products with ``n`` are exact; float32 lanes
are widened for it. Large ones, hardly ever seen, go lane by lane through a function after Payne and
Hanek: the product of the significand with the bits of 2/pi that matter, in integers.
"""

from fractions import Fraction

from tilewright.codegen.llvm.builder import Builder, Module, Value, constant
from tilewright.codegen.math.evaluation import absolute, bits_of, nearest_integer, polynomial

_TWO_OVER_PI = 0.6366197723675814
# pi/2 in parts of 25, 25 and 53 bits for float32 arguments below 2^28, of 33, 33 and 53 for
# doubles.
_PARTS = {
    "float": (1.5707963109016418, 1.5893254712295857e-08, 6.1232339957367660e-17),
    "double": (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21),
}
_LIMIT = {"float": 2.0**28, "double": 2.0**20}
TABLE_WORDS = 20
_PAIR = "{ double, i64 }"


def pi_fraction(bits: int) -> Fraction:
    """pi to at least that many bits, by Machin's formula."""

    def arctan_inverse(n: int) -> Fraction:
        total, term, k, scale = 0, (1 << (bits + 16)) // n, 1, n * n
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= scale
            k += 2
        return Fraction(total, 1 << (bits + 16))

    return 16 * arctan_inverse(5) - 4 * arctan_inverse(239)


def two_over_pi_words(count: int) -> list[int]:
    """The first ``64*count`` bits of 2/pi after the point, in words of 64."""
    bits = 64 * count
    number = int(2 / pi_fraction(bits + 64) * (1 << bits))
    return [(number >> (bits - 64 * (i + 1))) & ((1 << 64) - 1) for i in range(count)]


def sin(b: Builder, x: Value) -> Value:
    r, n = _reduced(b, x)
    value = _by_quadrant(b, *_narrowed(b, x, r, n))
    return _keeping_zero(b, x, value)


def cos(b: Builder, x: Value) -> Value:
    r, n = _narrowed(b, x, *_reduced(b, x))
    return _by_quadrant(b, r, b.add(n, b.like(1, n)))


def tan(b: Builder, x: Value) -> Value:
    r, n = _reduced(b, x)
    odd = _bit(b, n, 0)
    square = b.mul(r, r)
    if x.element == "float":
        tangent = b.fma(b.mul(r, square), polynomial(b, "TAN", square), r)
        value = b.select(odd, b.div(b.like(-1.0, r), tangent), tangent)
        return _keeping_zero(b, x, b.convert("fptrunc", value, "float"))
    sine, cosine = _sine(b, r, square), _cosine(b, square)
    numerator = b.select(odd, b.neg(cosine), sine)
    return _keeping_zero(b, x, b.div(numerator, b.select(odd, sine, cosine)))


def _keeping_zero(b: Builder, x: Value, value: Value) -> Value:
    """``value``, but zeros of both signs are themselves."""
    return b.select(b.compare("oeq", x, b.like(0.0, x)), x, value)


def _sine(b: Builder, r: Value, square: Value) -> Value:
    return b.fma(b.mul(r, square), polynomial(b, "SIN", square), r)


def _cosine(b: Builder, square: Value) -> Value:
    tail = b.fma(polynomial(b, "COS", square), square, b.like(-0.5, square))
    return b.fma(tail, square, b.like(1.0, square))


def _bit(b: Builder, n: Value, position: int) -> Value:
    bit = b.op("and", n, b.like(1 << position, n))
    return b.compare("ne", bit, b.like(0, n))


def _narrowed(b: Builder, x: Value, r: Value, n: Value) -> tuple[Value, Value]:
    """A reduced argument in the type of ``x``."""
    if x.element == "double":
        return r, n
    return b.convert("fptrunc", r, "float"), b.convert("trunc", n, "i32")


def _by_quadrant(b: Builder, r: Value, n: Value) -> Value:
    """The sine of ``r + n*pi/2``."""
    square = b.mul(r, r)
    value = b.select(_bit(b, n, 0), _cosine(b, square), _sine(b, r, square))
    sign = b.op("shl", b.op("and", n, b.like(2, n)), b.like(n.bits - 2, n))
    return b.bitcast(b.op("xor", bits_of(b, value), sign), r.element)


def _reduced(b: Builder, x: Value) -> tuple[Value, Value]:
    """The rest r, a double, and the low bits of the multiple n, an i64."""
    near = b.compare("olt", absolute(b, x), b.like(_LIMIT[x.element], x))
    bounded = b.select(near, x, b.like(0.0, x))
    wide = b.convert("fpext", bounded, "double") if x.element == "float" else bounded
    number, integer = nearest_integer(b, wide, _TWO_OVER_PI)
    rest = wide
    for part in _PARTS[x.element]:
        rest = b.fma(number, b.like(-part, wide), rest)
    return _with_far_lanes(b, x, near, rest, integer)


def _with_far_lanes(
    b: Builder, x: Value, near: Value, rest: Value, integer: Value
) -> tuple[Value, Value]:
    """Lanes out of the range of the fast reduction are reduced one by one."""
    function = _define_far(b.module)
    before, rare, done = b.block, b.new_block("far"), b.new_block("reduced")
    b.branch_if(b.any_lane(b.op("xor", near, b.like(True, near))), rare, done)
    b.enter(rare)
    wide = b.convert("fpext", x, "double") if x.element == "float" else x
    rests, integers = [], []
    for lane in range(x.lanes or 1):
        both = b.emit(f"call {_PAIR} @{function}({b.extract(wide, lane)})", _PAIR)
        rests.append(b.emit(f"extractvalue {_PAIR} {both.text}, 0", "double"))
        integers.append(b.emit(f"extractvalue {_PAIR} {both.text}, 1", "i64"))
    far_rest = b.gather_lanes(rests) if x.lanes else rests[0]
    far_integer = b.gather_lanes(integers) if x.lanes else integers[0]
    b.branch(done)
    b.enter(done)
    return b.phi([(rest, before), (far_rest, rare)]), b.phi(
        [(integer, before), (far_integer, rare)]
    )


def _define_far(module: Module) -> str:
    """The scalar reduction of any double; infinities and NaN give NaN."""
    name = "tw.reduce"
    if not module.define_once(name):
        return name
    table = _define_table(module)
    b = Builder(module)
    x = Value("%x", "double")
    far, near = b.new_block("far"), b.new_block("near")
    b.branch_if(b.compare("olt", absolute(b, x), b.like(_LIMIT["double"], x)), near, far)
    b.enter(near)
    number, multiple = nearest_integer(b, x, _TWO_OVER_PI)
    rest = x
    for part in _PARTS["double"]:
        rest = b.fma(number, b.like(-part, x), rest)
    _return_pair(b, rest, multiple)
    b.enter(far)
    rest, multiple = _payne_hanek(b, x, table)
    finite = b.compare("olt", absolute(b, x), b.like(float("inf"), x))
    _return_pair(b, b.select(finite, rest, b.like(float("nan"), x)), multiple)
    module.functions.append(
        f'define internal {_PAIR} @{name}({x}) noinline nounwind "no-builtins" {{\n{b.body()}\n}}'
    )
    return name


def _return_pair(b: Builder, rest: Value, multiple: Value) -> None:
    one = b.emit(f"insertvalue {_PAIR} poison, {rest}, 0", _PAIR)
    both = b.emit(f"insertvalue {_PAIR} {one.text}, {multiple}, 1", _PAIR)
    b.block.end = f"ret {_PAIR} {both.text}"


def _define_table(module: Module) -> Value:
    name = "tw.two_over_pi"
    if module.define_once(name):
        words = ", ".join(f"i64 {w}" for w in two_over_pi_words(TABLE_WORDS))
        module.functions.append(
            f"@{name} = internal unnamed_addr constant [{TABLE_WORDS} x i64] [{words}], align 8"
        )
    return Value(f"@{name}", "ptr")


def _payne_hanek(b: Builder, x: Value, table: Value) -> tuple[Value, Value]:
    """``x mod pi/2`` of a double ``|x| >= 2^20``, with the sign of ``x`` applied, and the multiple.

    With ``x = M * 2^e`` for a 53-bit integer M, bits of 2/pi that give multiples of 4 are left out:
    the window starts at bit ``e - 1`` (counted from 1) and takes 192 bits. ``M * window`` modulo
    2^192 is ``x * 2/pi`` modulo 4 in units of 2^-190.
    """
    i64 = "i64"
    bits = bits_of(b, x)
    exponent_bits = b.op("and", b.op("lshr", bits, constant(52, i64)), constant(2047, i64))
    exponent = b.sub(exponent_bits, constant(1075, i64))
    significand = b.op(
        "or", b.op("and", bits, constant((1 << 52) - 1, i64)), constant(1 << 52, i64)
    )
    # A 53-bit M makes e negative below 2^52: such bits before the point are zero.
    start = b.sub(exponent, constant(2, i64))
    padded = b.add(start, constant(64, i64))
    finite = b.intrinsic("smin", padded, constant(64 * (TABLE_WORDS - 4) + 63, i64))
    word = b.op("lshr", finite, constant(6, i64))
    shift = b.op("and", finite, constant(63, i64))
    words = []
    for i in range(4):
        position = b.add(word, constant(i - 1, i64))
        inside = b.compare("sge", position, constant(0, i64))
        safe = b.select(inside, position, constant(0, i64))
        address = b.emit(f"getelementptr i64, {table}, {safe}", "ptr")
        loaded = b.emit(f"load i64, {address}, align 8", i64)
        words.append(b.select(inside, loaded, constant(0, i64)))
    window = [b.intrinsic("fshl", words[i], words[i + 1], shift) for i in range(3)]
    return _signed_fraction(b, x, _product(b, significand, window))


def _product(b: Builder, factor: Value, window: list[Value]) -> tuple[Value, Value]:
    """The upper two words of the 192-bit product, modulo 2^192, of a word and three words."""
    m = b.convert("zext", factor, "i128")
    sixty_four = constant(64, "i128")
    low = b.mul(m, b.convert("zext", window[2], "i128"))
    middle = b.mul(m, b.convert("zext", window[1], "i128"))
    middle = b.add(middle, b.op("lshr", low, sixty_four))
    high = b.mul(factor, window[0])
    high = b.add(high, b.convert("trunc", b.op("lshr", middle, sixty_four), "i64"))
    return high, b.convert("trunc", middle, "i64")


def _signed_fraction(b: Builder, x: Value, product: tuple[Value, Value]) -> tuple[Value, Value]:
    """The nearest integer of a number modulo 4 in units of 2^-126, and the rest times pi/2."""
    high, low = product
    i64 = "i64"
    rounded = b.add(high, constant(1 << 61, i64))
    multiple = b.op("lshr", rounded, constant(62, i64))
    rest = b.sub(high, b.op("shl", multiple, constant(62, i64)))
    # The words as doubles, the upper one signed; small rests get their digits from the lower.
    upper = b.mul(b.convert("sitofp", rest, "double"), constant(2.0**-62, "double"))
    lower = b.mul(b.convert("uitofp", low, "double"), constant(2.0**-126, "double"))
    fraction = b.add(upper, lower)
    angle = b.mul(fraction, constant(1.5707963267948966, "double"))
    negative = b.compare("olt", x, constant(0.0, "double"))
    signed = b.select(negative, b.neg(angle), angle)
    return signed, b.select(negative, b.sub(constant(0, i64), multiple), multiple)
