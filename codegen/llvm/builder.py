# SPDX-License-Identifier: Apache-2.0
"""A light builder of LLVM IR text.

A :class:`Module` collects declarations, internal functions and alias scopes; a :class:`Builder`
appends instructions to the blocks of one function. A :class:`Value` is operand text with its type,
so emission is string formatting, several times faster than an object model of LLVM IR. Values are
named, not numbered: code may be inserted into a block that is finished already
(:meth:`Builder.at`), which is how invariant code is hoisted.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tilewright.ir.target import Target

INTRINSIC_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


class Value(NamedTuple):
    """An operand: its text, the element type, and the number of lanes (0: a scalar)."""

    text: str
    element: str
    lanes: int = 0

    @property
    def type(self) -> str:
        return vector_type(self.element, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.element in ("float", "double")

    @property
    def bits(self) -> int:
        """Width of one element."""
        return element_bits(self.element)

    @property
    def is_constant(self) -> bool:
        return self.text[0] != "%"

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def vector_type(element: str, lanes: int) -> str:
    """The type of ``lanes`` elements; the element type itself for 0."""
    return f"<{lanes} x {element}>" if lanes else element


def element_bits(element: str) -> int:
    """Width of an element type in bits."""
    widths = {"float": 32, "double": 64, "half": 16, "ptr": 64}
    return widths[element] if element in widths else int(element[1:])


def constant_text(value: int | float | bool, element: str) -> str:
    """A literal of a scalar type; floats are rounded to it and written exactly."""
    if element in ("float", "double"):
        number = float(value)
        if element == "float":
            try:
                number = struct.unpack("<f", struct.pack("<f", number))[0]
            except OverflowError:
                number = float("inf") if number > 0 else float("-inf")
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if element == "i1":
        return "true" if value else "false"
    return str(int(value))


def constant(value: int | float | bool, element: str, lanes: int = 0) -> Value:
    """A constant, the same in every lane."""
    literal = constant_text(value, element)
    return Value(f"splat ({element} {literal})" if lanes else literal, element, lanes)


def vector_constant(values: Sequence[int | float | bool], element: str) -> Value:
    """A vector with its own constant in every lane."""
    lanes = ", ".join(f"{element} {constant_text(v, element)}" for v in values)
    return Value(f"<{lanes}>", element, len(values))


class Block:
    """A basic block under construction: its label, its instructions, and its terminator once it
    has one.
    """

    __slots__ = ("end", "label", "lines", "splats")

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []
        self.end = ""
        self.splats: dict[tuple[str, int], Value] = {}


class Module:
    """What the functions of one translation unit share."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.functions: list[str] = []
        self._defined: set[str] = set()
        self._declarations: dict[str, str] = {}
        self._metadata: list[str] = []

    def declare(self, name: str, result: str, parameters: Sequence[str]) -> None:
        """Declare an intrinsic or an external function."""
        self._declarations[name] = f"declare {result} @{name}({', '.join(parameters)})"

    def define_once(self, name: str) -> bool:
        """True the first time it is asked for a name: the caller then adds the function."""
        if name in self._defined:
            return False
        self._defined.add(name)
        return True

    def metadata(self, text: str) -> str:
        """A numbered metadata node; ``{self}`` in the text is its own number."""
        number = f"!{len(self._metadata)}"
        self._metadata.append(f"{number} = {text.replace('{self}', number)}")
        return number

    def text(self) -> str:
        """The whole module."""
        parts = [*self.functions, *sorted(self._declarations.values()), *self._metadata]
        return "\n".join(parts) + "\n"


class Builder:
    """Appends instructions to one function.

    ``block`` is where the next instruction goes. Arithmetic methods work on scalars and vectors
    alike and splat a scalar operand beside a vector. ``contracts`` says whether a product that is
    added to something may go unrounded into the sum, as it does where the target fuses the two.
    """

    def __init__(self, module: Module, contracts: bool = True) -> None:
        self.module = module
        self.target = module.target
        self.contracts = contracts and module.target.has_fma
        self._count = 0
        self.allocations: list[str] = []
        self.blocks: list[Block] = []
        self.block = self.new_block("entry")

    # --- structure --------------------------------------------------------------------------------

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def new_block(self, hint: str) -> Block:
        """A fresh block; it becomes part of the function when it is entered with :meth:`enter`."""
        if hint == "entry":
            block = Block("entry")
            self.blocks.append(block)
            return block
        self._count += 1
        return Block(f"{hint}{self._count}")

    def enter(self, block: Block) -> None:
        """Continue in ``block``."""
        self.blocks.append(block)
        self.block = block

    @contextmanager
    def at(self, block: Block) -> Iterator[None]:
        """Append to another block for a while, before its terminator if it has one."""
        saved, self.block = self.block, block
        yield
        self.block = saved

    def branch(self, to: Block) -> None:
        self.block.end = f"br label %{to.label}"

    def branch_if(self, condition: Value, then: Block, otherwise: Block) -> None:
        self.block.end = f"br i1 {condition.text}, label %{then.label}, label %{otherwise.label}"

    def ret(self, value: Value) -> None:
        self.block.end = f"ret {value}"

    def body(self) -> str:
        """The text of all blocks, allocations first."""
        out: list[str] = []
        for position, block in enumerate(self.blocks):
            out.append(f"{block.label}:")
            if position == 0:
                out += self.allocations
            out += block.lines
            out.append(f"  {block.end}")
        return "\n".join(out)

    def emit(self, text: str, element: str, lanes: int = 0) -> Value:
        """Append ``%new = text``."""
        name = self.name()
        self.block.lines.append(f"  {name} = {text}")
        return Value(name, element, lanes)

    def emit_void(self, text: str) -> None:
        self.block.lines.append(f"  {text}")

    def allocate(self, type: str, count: int, align: int) -> Value:
        """Stack memory of the function, allocated in its entry block."""
        name = self.name()
        self.allocations.append(f"  {name} = alloca [{count} x {type}], align {align}")
        return Value(name, "ptr")

    def phi(self, incoming: Sequence[tuple[Value, Block]]) -> Value:
        first = incoming[0][0]
        pairs = ", ".join(f"[ {v.text}, %{b.label} ]" for v, b in incoming)
        return self.emit(f"phi {first.type} {pairs}", first.element, first.lanes)

    # --- vectors ----------------------------------------------------------------------------------

    def splat(self, v: Value, lanes: int) -> Value:
        """``v`` in every lane; ``v`` itself if it is a vector already or ``lanes`` is 0."""
        if v.lanes or not lanes:
            return v
        if v.is_constant:
            return Value(f"splat ({v.element} {v.text})", v.element, lanes)
        known = self.block.splats.get((v.text, lanes))
        if known is None:
            kind = vector_type(v.element, lanes)
            one = self.emit(f"insertelement {kind} poison, {v}, i64 0", v.element, lanes)
            known = self.block.splats[v.text, lanes] = self.emit(
                f"shufflevector {one}, {kind} poison, <{lanes} x i32> zeroinitializer",
                v.element,
                lanes,
            )
        return known

    def matched(self, *values: Value) -> list[Value]:
        """The values with scalars splatted to the lanes of the vectors among them."""
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values] if lanes else list(values)

    def extract(self, v: Value, lane: int) -> Value:
        """One lane of a vector; a scalar is the same in every lane."""
        if not v.lanes:
            return v
        return self.emit(f"extractelement {v}, i64 {lane}", v.element)

    def gather_lanes(self, values: Sequence[Value]) -> Value:
        """A vector of scalars."""
        lanes = len(values)
        result = Value("poison", values[0].element, lanes)
        for lane, v in enumerate(values):
            result = self.emit(f"insertelement {result}, {v}, i64 {lane}", v.element, lanes)
        return result

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes picked from two vectors of one type, counted through both."""
        mask = ", ".join(f"i32 {i}" for i in lanes)
        n = len(lanes)
        return self.emit(f"shufflevector {a}, {b}, <{n} x i32> <{mask}>", a.element, n)

    # --- arithmetic -------------------------------------------------------------------------------

    def op(self, name: str, x: Value, y: Value) -> Value:
        """A binary instruction, flags included in its name."""
        x, y = self.matched(x, y)
        return self.emit(f"{name} {x}, {y.text}", x.element, x.lanes)

    def add(self, x: Value, y: Value) -> Value:
        return self.op("fadd" if x.is_float else "add", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return self.op("fsub" if x.is_float else "sub", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return self.op("fmul" if x.is_float else "mul", x, y)

    def div(self, x: Value, y: Value) -> Value:
        return self.op("fdiv", x, y)

    def neg(self, x: Value) -> Value:
        if x.is_float:
            return self.emit(f"fneg {x}", x.element, x.lanes)
        return self.op("sub", self.like(0, x), x)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """``x*y + z``, with one rounding where the target can, else with two."""
        if not self.target.has_fma:
            return self.add(self.mul(x, y), z)
        x, y, z = self.matched(x, y, z)
        return self.intrinsic("fma", x, y, z)

    def compare(self, predicate: str, x: Value, y: Value) -> Value:
        """``icmp`` or ``fcmp`` by the type of the operands."""
        x, y = self.matched(x, y)
        instruction = "fcmp" if x.is_float else "icmp"
        return self.emit(f"{instruction} {predicate} {x}, {y.text}", "i1", x.lanes)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        if condition.lanes:
            x, y = self.splat(x, condition.lanes), self.splat(y, condition.lanes)
        x, y = self.matched(x, y)
        return self.emit(f"select {condition}, {x}, {y}", x.element, x.lanes)

    def convert(self, instruction: str, x: Value, element: str) -> Value:
        """A conversion instruction such as ``sext`` or ``fptosi``, lane by lane."""
        kind = vector_type(element, x.lanes)
        return self.emit(f"{instruction} {x} to {kind}", element, x.lanes)

    def bitcast(self, x: Value, element: str) -> Value:
        return x if x.element == element else self.convert("bitcast", x, element)

    def like(self, value: int | float | bool, v: Value) -> Value:
        """A constant of the type of ``v``."""
        return constant(value, v.element, v.lanes)

    def intrinsic(self, name: str, *args: Value) -> Value:
        """A call of ``llvm.NAME`` overloaded on the type of its first argument."""
        first = args[0]
        suffix = INTRINSIC_SUFFIX.get(first.element, first.element)
        full = f"llvm.{name}." + (f"v{first.lanes}{suffix}" if first.lanes else suffix)
        self.module.declare(full, first.type, [a.type for a in args])
        return self.emit(
            f"call {first.type} @{full}({', '.join(map(str, args))})", first.element, first.lanes
        )

    def call(self, name: str, element: str, lanes: int, args: Sequence[Value]) -> Value:
        """A call of a function of this module."""
        kind = vector_type(element, lanes)
        return self.emit(f"call {kind} @{name}({', '.join(map(str, args))})", element, lanes)

    def any_lane(self, mask: Value) -> Value:
        """True if a lane of the mask is; the mask itself if it is a scalar."""
        if not mask.lanes:
            return mask
        bits = self.emit(f"bitcast {mask} to i{mask.lanes}", f"i{mask.lanes}")
        return self.compare("ne", bits, constant(0, bits.element))
