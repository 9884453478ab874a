# SPDX-License-Identifier: Apache-2.0
"""Reads and writes of buffers: scalar, contiguous, strided and gathered accesses, masked where
lanes are inactive.

A buffer's layout flattens logical indices to one offset. Its dependence on the vectorised variable
picks the access: none, a scalar; coefficient 1, one vector; -1, one vector reversed; 2, two vectors
shuffled; otherwise element by element. Every access carries the alias scope of its buffer, since
kernel arguments never overlap.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Builder, Module, Value, vector_type
from tilewright.codegen.llvm.environment import Environment, is_pure
from tilewright.codegen.llvm.indices import (
    IndexEmitter,
    Terms,
    integer_constant,
    split_constant,
    split_lane,
)
from tilewright.codegen.llvm.small_floats import FORMATS, decode, encode, has_half_conversions
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F16, DType
from tilewright.ir.expr import Const, Expr, Var, add, free_variables, mul, polynomial
from tilewright.ir.simplify import is_nonnegative, known_le, substitute
from tilewright.ir.target import Target

MAX_SHUFFLED_STRIDE = 2


@dataclass
class Place:
    """Where a buffer lies. ``private`` is the lane variable of the loop that it was allocated in:
    each lane has its own copy, interleaved. ``alias`` is the metadata of its accesses; ``align``
    that of its start.
    """

    pointer: Value
    depth: int
    align: int
    read_only: bool = False
    private: Var | None = None
    lanes: int = 0
    alias: str = ""


def memory_element(dtype: DType, target: Target) -> str:
    """The LLVM type of a stored element."""
    if dtype is F16 and has_half_conversions(target):
        return "half"
    if dtype.is_float and dtype.bits >= 32:
        return "double" if dtype.bits == 64 else "float"
    return f"i{8 * dtype.bytes}"


def from_memory(b: Builder, stored: Value, dtype: DType) -> Value:
    """The value of stored bits."""
    if dtype.is_bool:
        return b.compare("ne", stored, b.like(0, stored))
    if dtype in FORMATS:
        return decode(b, stored, dtype)
    return b.convert("trunc", stored, f"i{dtype.bits}") if dtype.bits < 8 else stored


def to_memory(b: Builder, x: Value, dtype: DType) -> Value:
    """The stored bits of a value."""
    if dtype in FORMATS:
        return encode(b, x, dtype)
    if dtype.is_bool:
        return b.convert("zext", x, "i8")
    if dtype.bits < 8:
        return b.convert("zext", x, "i8")
    return x


def alias_scopes(
    module: Module, buffers: Iterable[str], overlapping: set[frozenset[str]]
) -> dict[str, str]:
    """The access metadata of each buffer: its scope, and the scopes that it does not overlap."""
    names = list(buffers)
    domain = module.metadata('distinct !{{self}, !"kernel"}')
    scopes = {
        n: module.metadata(f'distinct !{{{{self}}, {domain}, !"{i}"}}') for i, n in enumerate(names)
    }
    lists: dict[str, str] = {}
    for name in names:
        own = module.metadata(f"!{{{scopes[name]}}}")
        apart = [
            scopes[other]
            for other in names
            if other != name and frozenset((name, other)) not in overlapping
        ]
        lists[name] = f", !alias.scope {own}"
        if apart:
            lists[name] += f", !noalias {module.metadata('!{' + ', '.join(apart) + '}')}"
    return lists


class Memory:
    """Emits loads and stores."""

    def __init__(self, builder: Builder, environment: Environment, indices: IndexEmitter) -> None:
        self.builder = builder
        self.environment = environment
        self.indices = indices
        self.places: dict[Buffer, Place] = {}
        self._spare: Value | None = None

    # --- addresses --------------------------------------------------------------------------------

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The flattened position of an element, numbers of unrolled loops filled in."""
        offset = self.environment.resolve(flat_offset(buffer, indices))
        place = self.places[buffer]
        if place.private is None:
            return offset
        return add(mul(offset, place.lanes), self.environment.resolve(place.private))

    def pointer(self, buffer: Buffer, offset: Expr) -> Value:
        """The address of the element at an offset that is the same in all lanes."""
        terms, number = split_constant(offset)
        pointer = self._pointer(buffer, terms)
        if not number:
            return pointer
        key = (self.places[buffer].pointer.text, terms, number)
        known = self.environment.recall_anywhere(key)
        if known is None:
            moved = self.builder.emit(
                f"getelementptr i8, {pointer}, i64 {number * buffer.dtype.bytes}", "ptr"
            )
            known = self.environment.remember(key, self.environment.depth, moved)
        return known

    def _pointer(self, buffer: Buffer, terms: Terms) -> Value:
        env, place = self.environment, self.places[buffer]
        if not terms:
            return place.pointer
        pure = all(is_pure(a) for m, _ in terms for a in m)
        depths = [max(self.indices.depth(m), place.depth) for m, _ in terms]
        home = max(depths) if pure else env.depth
        key = (place.pointer.text, terms)
        known = env.recall(key, home) if pure else env.recall_in_statement(key)
        if known is not None:
            return known
        outer = tuple(t for t, d in zip(terms, depths) if d < home)
        inner = tuple(t for t, d in zip(terms, depths) if d >= home)
        base = self._pointer(buffer, outer)
        with env.insertion(home):
            position = self.indices.sum(inner)
            element = memory_element(buffer.dtype, self.builder.target)
            pointer = self.builder.emit(f"getelementptr {element}, {base}, {position}", "ptr")
        if pure:
            return env.remember(key, home, pointer)
        env.statement[-1][key] = pointer
        return pointer

    def _align(self, buffer: Buffer, offset: Expr) -> int:
        """The alignment known of the element at ``offset``."""
        place, size = self.places[buffer], buffer.dtype.bytes
        number = integer_constant(offset)
        if number is None:
            return size
        position = number * size
        return place.align if position == 0 else min(place.align, position & -position)

    # --- reads ------------------------------------------------------------------------------------

    def load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        """The elements at ``indices``: a scalar where all lanes read the same one."""
        env = self.environment
        offset = self.offset(buffer, indices)
        place = self.places[buffer]
        mask = env.mask
        key = ("load", place.pointer.text, offset, env.lane, mask and mask.text)
        known = env.recall_anywhere(key) if place.read_only else env.recall_in_statement(key)
        if known is not None:
            return known
        stored = self._load(buffer, offset)
        value = from_memory(self.builder, stored, buffer.dtype)
        if place.read_only and is_pure(offset):
            return env.remember(key, env.depth, value)
        env.statement[-1][key] = value
        return value

    def _load(self, buffer: Buffer, offset: Expr) -> Value:
        env = self.environment
        if not env.varies(offset):
            return self._load_one(buffer, self.pointer(buffer, offset), self._align(buffer, offset))
        stride, rest = self._affine(offset)
        if rest is None:
            return self._gather(buffer, offset)
        if stride == 1:
            return self._load_vector(buffer, rest, env.lanes, env.mask)
        if stride == -1:
            start = add(rest, 1 - env.lanes)
            mask = self._reversed(env.mask) if env.mask else None
            return self._reversed(self._load_vector(buffer, start, env.lanes, mask))
        if stride == MAX_SHUFFLED_STRIDE and env.mask is None:
            return self._load_pairs(buffer, rest)
        return self._gather(buffer, offset)

    def _affine(self, offset: Expr) -> tuple[int | None, Expr | None]:
        """The constant stride in the lane variable and the rest, or (None, None)."""
        env = self.environment
        assert env.lane is not None
        split = split_lane(offset, env.lane)
        if split is None or env.varies(split[1]):
            return None, None
        stride = integer_constant(split[0])
        return (stride, split[1]) if stride is not None else (None, None)

    def _reversed(self, v: Value) -> Value:
        return self.builder.shuffle(v, v, range(v.lanes - 1, -1, -1))

    def _load_one(self, buffer: Buffer, pointer: Value, align: int) -> Value:
        element = memory_element(buffer.dtype, self.builder.target)
        alias = self.places[buffer].alias
        return self.builder.emit(f"load {element}, {pointer}, align {align}{alias}", element)

    def _load_vector(self, buffer: Buffer, start: Expr, lanes: int, mask: Value | None) -> Value:
        b = self.builder
        pointer, align = self.pointer(buffer, start), self._align(buffer, start)
        element = memory_element(buffer.dtype, b.target)
        kind, alias = vector_type(element, lanes), self.places[buffer].alias
        if mask is None or self._all_lanes_exist(buffer, start, lanes):
            return b.emit(f"load {kind}, {pointer}, align {align}{alias}", element, lanes)
        suffix = kind_suffix(element, lanes)
        b.module.declare(
            f"llvm.masked.load.{suffix}.p0", kind, ["ptr", vector_type("i1", lanes), kind]
        )
        return b.emit(
            f"call {kind} @llvm.masked.load.{suffix}.p0(ptr align {align} {pointer.text}, {mask}, "
            f"{kind} zeroinitializer){alias}",
            element,
            lanes,
        )

    def _load_pairs(self, buffer: Buffer, start: Expr) -> Value:
        """Every second element: two vectors that end at the last one wanted."""
        lanes = self.environment.lanes
        low = self._load_vector(buffer, start, lanes, None)
        high = self._load_vector(buffer, add(start, lanes - 1), lanes, None)
        picked = [2 * i if 2 * i < lanes else lanes + 2 * i - (lanes - 1) for i in range(lanes)]
        return self.builder.shuffle(low, high, picked)

    def _gather(self, buffer: Buffer, offset: Expr) -> Value:
        """Element by element; an inactive lane reads a spare place instead."""
        env, b = self.environment, self.builder
        element = memory_element(buffer.dtype, b.target)
        loaded = []
        for lane, pointer in enumerate(self._lane_pointers(buffer, offset)):
            if env.mask is not None:
                active = b.extract(env.mask, lane)
                pointer = b.select(active, pointer, self._spare_place())
            loaded.append(self._load_one(buffer, pointer, buffer.dtype.bytes))
        result = b.gather_lanes(loaded)
        return Value(result.text, element, env.lanes)

    def _lane_pointers(self, buffer: Buffer, offset: Expr) -> list[Value]:
        """The address of every lane's element."""
        env, b = self.environment, self.builder
        lane = env.lane
        assert lane is not None
        static = all(not env.varies(v) or v is lane for v in free_variables(offset))
        if static and is_pure(offset):
            return [
                self.pointer(buffer, substitute(offset, {lane: Const(str(i), lane.dtype)}))
                for i in range(env.lanes)
            ]
        positions = self.indices.sum(split_constant(offset)[0])
        number = split_constant(offset)[1]
        element = memory_element(buffer.dtype, b.target)
        base = self.pointer(buffer, polynomial({(): number}))
        return [
            b.emit(f"getelementptr {element}, {base}, {b.extract(positions, i)}", "ptr")
            for i in range(env.lanes)
        ]

    def _spare_place(self) -> Value:
        if self._spare is None:
            self._spare = self.builder.allocate("i64", 1, 8)
            self.builder.blocks[0].lines.insert(0, f"  store i64 0, {self._spare}")
        return self._spare

    # --- writes -----------------------------------------------------------------------------------

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> None:
        """Write ``value``; only active lanes where there is a mask."""
        env, b = self.environment, self.builder
        offset = self.offset(buffer, indices)
        if not env.varies(offset):
            self._store_same(buffer, offset, value)
            return
        stored = to_memory(b, b.splat(value, env.lanes), buffer.dtype)
        stride, rest = self._affine(offset)
        if rest is not None and stride in (1, -1):
            mask = env.mask
            if stride == -1:
                rest = add(rest, 1 - env.lanes)
                stored = self._reversed(stored)
                mask = self._reversed(mask) if mask else None
            self._store_vector(buffer, rest, stored, mask)
            return
        for lane, pointer in enumerate(self._lane_pointers(buffer, offset)):
            self._store_lane(buffer, pointer, stored, lane)

    def _store_same(self, buffer: Buffer, offset: Expr, value: Value) -> None:
        """All lanes write one element: the last active lane's value stays."""
        env, b = self.environment, self.builder
        stored = to_memory(b, value, buffer.dtype)
        pointer = self.pointer(buffer, offset)
        if env.mask is None:
            last = b.extract(stored, stored.lanes - 1) if stored.lanes else stored
            self._store_one(buffer, pointer, last, self._align(buffer, offset))
            return
        stored = b.splat(stored, env.lanes)
        for lane in range(env.lanes):
            self._store_lane(buffer, pointer, stored, lane)

    def _store_one(self, buffer: Buffer, pointer: Value, stored: Value, align: int) -> None:
        alias = self.places[buffer].alias
        self.builder.emit_void(f"store {stored}, {pointer}, align {align}{alias}")

    def _store_vector(self, buffer: Buffer, start: Expr, stored: Value, mask: Value | None) -> None:
        b = self.builder
        pointer, align = self.pointer(buffer, start), self._align(buffer, start)
        alias = self.places[buffer].alias
        if mask is None:
            b.emit_void(f"store {stored}, {pointer}, align {align}{alias}")
            return
        if self._all_lanes_exist(buffer, start, stored.lanes):
            # A select keeps the buffer in registers; a masked store would force it into memory.
            old = b.emit(
                f"load {stored.type}, {pointer}, align {align}{alias}", stored.element, stored.lanes
            )
            kept = b.select(mask, stored, old)
            b.emit_void(f"store {kept}, {pointer}, align {align}{alias}")
            return
        suffix = kind_suffix(stored.element, stored.lanes)
        b.module.declare(f"llvm.masked.store.{suffix}.p0", "void", [stored.type, "ptr", mask.type])
        b.emit_void(
            f"call void @llvm.masked.store.{suffix}.p0({stored}, "
            f"ptr align {align} {pointer.text}, {mask}){alias}"
        )

    def _all_lanes_exist(self, buffer: Buffer, start: Expr, lanes: int) -> bool:
        """True for a register buffer in which all lanes, active or not, lie within bounds."""
        size = buffer.layout.size(buffer.shape)
        return (
            buffer.scope == "register"
            and is_nonnegative(start)
            and known_le(add(start, lanes), size)
        )

    def _store_lane(self, buffer: Buffer, pointer: Value, stored: Value, lane: int) -> None:
        """One lane's element, in a branch if the lane may be inactive."""
        env, b = self.environment, self.builder
        one, align = b.extract(stored, lane), buffer.dtype.bytes
        if env.mask is None:
            self._store_one(buffer, pointer, one, align)
            return
        write, after = b.new_block("lane"), b.new_block("next")
        b.branch_if(b.extract(env.mask, lane), write, after)
        b.enter(write)
        self._store_one(buffer, pointer, one, align)
        b.branch(after)
        b.enter(after)


def flat_offset(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The position of an element in its buffer, in elements; remembered by the buffer."""
    memo = buffer._memo
    key = ("offset", indices)
    known: Expr | None = memo.get(key)
    if known is None:
        known = memo[key] = buffer.layout.offset(buffer.shape, indices)
    return known


def kind_suffix(element: str, lanes: int) -> str:
    """The mangled name of a vector type in an intrinsic."""
    return f"v{lanes}" + {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
