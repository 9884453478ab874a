# SPDX-License-Identifier: Apache-2.0
"""Reads and writes of buffers: scalar, contiguous, strided and gathered accesses, masked where
lanes are inactive.

A buffer's layout flattens logical indices to one offset. Its dependence on the vectorised variable
picks the access: none, a scalar; coefficient 1, one vector; -1, one vector reversed; 2, two vectors
shuffled; otherwise element by element. Every access carries the alias scope of its buffer, since
kernel arguments never overlap.
"""

from tilewright.codegen.llvm.addresses import Addresses, Offset, memory_element
from tilewright.codegen.llvm.builder import Builder, Value, vector_type
from tilewright.codegen.llvm.environment import is_pure
from tilewright.codegen.llvm.small_floats import FORMATS, decode, encode
from tilewright.ir.bounds import is_nonnegative, known_le
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import DType
from tilewright.ir.expr import Expr, Read, Symbol, free_variables, reads
from tilewright.ir.loop import Store


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


class Memory:
    """Emits loads and stores."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self.builder = addresses.builder
        self.environment = addresses.environment
        self.places = addresses.places
        self._spare: Value | None = None

    # --- reads ------------------------------------------------------------------------------------

    def load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        """The elements at ``indices``: a scalar where all lanes read the same one."""
        env, place = self.environment, self.places[buffer]
        offset = self.addresses.offset(buffer, indices)
        mask = env.mask.text if env.mask else None
        key = ("load", place.pointer.text, offset, env.lane, mask)
        known = env.recall_anywhere(key) if place.read_only else env.recall_in_statement(key)
        if known is not None:
            return known
        value = from_memory(self.builder, self._load(buffer, offset), buffer.dtype)
        if place.read_only and is_pure(offset.terms):
            return env.remember(key, env.depth, value)
        env.statement[-1][key] = value
        return value

    def is_vector_read(self, buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
        """True if the lanes read different elements."""
        return self.addresses.access(self.addresses.offset(buffer, indices)).stride != 0

    def _load(self, buffer: Buffer, offset: Offset) -> Value:
        env = self.environment
        stride, rest = self.addresses.access(offset)
        if stride == 0:
            pointer = self.addresses.pointer(buffer, rest)
            return self._load_one(buffer, pointer, self.addresses.align(buffer, rest))
        if stride in (1, -1) and (env.mask is None or self._has_masked_moves(buffer)):
            if stride == 1:
                return self._load_vector(buffer, rest, env.mask)
            mask = self._reversed(env.mask) if env.mask else None
            return self._reversed(self._load_vector(buffer, rest.plus(1 - env.lanes), mask))
        if stride is not None and 2 <= stride <= self._longest_stride(buffer) and not env.mask:
            return self._load_strided(buffer, rest, stride)
        cycle = self.addresses.period(offset) if stride is None else None
        if cycle is not None and env.lanes % cycle[0] == 0 and not env.mask:
            once = self._load_vector(buffer, cycle[1], None, cycle[0])
            return self.builder.shuffle(once, once, [i % cycle[0] for i in range(env.lanes)])
        return self._gather(buffer, offset)

    def _longest_stride(self, buffer: Buffer) -> int:
        """The longest stride at which vectors are fewer loads than elements, by half."""
        return min(self.environment.lanes, self.builder.target.lanes(buffer.dtype.bytes)) // 2

    def _has_masked_moves(self, buffer: Buffer) -> bool:
        """True if the target masks elements of that size; else LLVM makes a branch a lane."""
        target, bits = self.builder.target, 8 * buffer.dtype.bytes
        return bits >= 32 or buffer.scope == "register" or "avx512bw" in target.features

    def _reversed(self, v: Value) -> Value:
        return self.builder.shuffle(v, v, range(v.lanes - 1, -1, -1))

    def _load_one(self, buffer: Buffer, pointer: Value, align: int) -> Value:
        element = memory_element(buffer.dtype, self.builder.target)
        alias = self.places[buffer].alias
        return self.builder.emit(f"load {element}, {pointer}, align {align}{alias}", element)

    def _load_vector(
        self, buffer: Buffer, start: Offset, mask: Value | None, lanes: int | None = None
    ) -> Value:
        b, lanes = self.builder, lanes or self.environment.lanes
        pointer = self.addresses.pointer(buffer, start)
        align = self.addresses.align(buffer, start)
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

    def _load_strided(self, buffer: Buffer, start: Offset, stride: int) -> Value:
        """Every ``stride``-th element, one register of them at a time."""
        b, lanes = self.builder, self.environment.lanes
        width = b.target.lanes(buffer.dtype.bytes)
        if lanes <= width or lanes % width or lanes & (lanes - 1):
            return self._pick(buffer, start, stride, lanes)
        parts = [
            self._pick(buffer, start.plus(at * stride), stride, width)
            for at in range(0, lanes, width)
        ]
        while len(parts) > 1:
            parts = [
                b.shuffle(x, y, range(2 * x.lanes))
                for x, y in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def _pick(self, buffer: Buffer, start: Offset, stride: int, lanes: int) -> Value:
        """Every ``stride``-th element: as many vectors as these lie in, the last of which ends at
        the last one wanted.
        """
        last = (lanes - 1) * stride + 1 - lanes
        starts = [*range(0, last, lanes), last]
        held: dict[int, int] = {}  # the vector that has a lane
        for number, at in enumerate(starts):
            held |= {i: number for i in range(lanes) if at <= i * stride < at + lanes}
        picked = self._load_vector(buffer, start, None, lanes)
        for number, at in enumerate(starts[1:], 1):
            more = self._load_vector(buffer, start.plus(at), None, lanes)
            # A lane of an earlier vector stays in its place, once it has been picked.
            before = range(lanes) if number > 1 else [i * stride % lanes for i in range(lanes)]
            picked = self.builder.shuffle(
                picked,
                more,
                [lanes + i * stride - at if held[i] == number else before[i] for i in range(lanes)],
            )
        return picked

    def _gather(self, buffer: Buffer, offset: Offset) -> Value:
        """Element by element; an inactive lane reads a spare place instead."""
        env, b = self.environment, self.builder
        loaded = []
        for lane, pointer in enumerate(self.addresses.lane_pointers(buffer, offset)):
            if env.mask is not None:
                active = b.extract(env.mask, lane)
                pointer = b.select(active, pointer, self._spare_place())
            loaded.append(self._load_one(buffer, pointer, buffer.dtype.bytes))
        return b.gather_lanes(loaded)

    def _spare_place(self) -> Value:
        if self._spare is None:
            self._spare = self.builder.allocate("i64", 1, 8)
            self.builder.blocks[0].lines.insert(0, f"  store i64 0, {self._spare}")
        return self._spare

    # --- whole vectors, as they lie in memory ---

    def in_memory(self, read: Read, store: Store) -> bool:
        """True if no lane has a copy of its own of what is read and written."""
        return all(self.places[b].private is None for b in (read.buffer, store.buffer))

    def load_whole(self, buffer: Buffer, indices: tuple[Expr, ...], lanes: int) -> Value:
        """The elements from one on, in the type of memory."""
        return self._load_vector(buffer, self.addresses.offset(buffer, indices), None, lanes)

    def store_whole(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> None:
        """Write a vector in the type of memory from an element on."""
        self._store_vector(buffer, self.addresses.offset(buffer, indices), value, None)

    # --- writes -----------------------------------------------------------------------------------

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> None:
        """Write ``value``; only active lanes where there is a mask."""
        env, b = self.environment, self.builder
        offset = self.addresses.offset(buffer, indices)
        stride, rest = self.addresses.access(offset)
        if stride == 0:
            self._store_same(buffer, rest, value)
            return
        stored = to_memory(b, b.splat(value, env.lanes), buffer.dtype)
        if stride in (1, -1):
            mask = env.mask
            if stride == -1:
                rest = rest.plus(1 - env.lanes)
                stored = self._reversed(stored)
                mask = self._reversed(mask) if mask else None
            self._store_vector(buffer, rest, stored, mask)
            return
        for lane, pointer in enumerate(self.addresses.lane_pointers(buffer, offset)):
            self._store_lane(buffer, pointer, stored, lane)

    def _store_same(self, buffer: Buffer, offset: Offset, value: Value) -> None:
        """All lanes write one element: the last active lane's value stays."""
        env, b = self.environment, self.builder
        stored = to_memory(b, value, buffer.dtype)
        pointer = self.addresses.pointer(buffer, offset)
        if env.mask is None:
            last = b.extract(stored, stored.lanes - 1) if stored.lanes else stored
            self._store_one(buffer, pointer, last, self.addresses.align(buffer, offset))
            return
        stored = b.splat(stored, env.lanes)
        for lane in range(env.lanes):
            self._store_lane(buffer, pointer, stored, lane)

    def _store_one(self, buffer: Buffer, pointer: Value, stored: Value, align: int) -> None:
        alias = self.places[buffer].alias
        self.builder.emit_void(f"store {stored}, {pointer}, align {align}{alias}")

    def _store_vector(
        self, buffer: Buffer, start: Offset, stored: Value, mask: Value | None
    ) -> None:
        b = self.builder
        pointer = self.addresses.pointer(buffer, start)
        align = self.addresses.align(buffer, start)
        alias = self.places[buffer].alias
        if mask is None:
            b.emit_void(f"store {stored}, {pointer}, align {align}{alias}")
            return
        if self._all_lanes_exist(buffer, start, stored.lanes) and self._mask_is_lasting(buffer):
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

    def _mask_is_lasting(self, buffer: Buffer) -> bool:
        """True if the same lanes are inactive as long as the buffer exists: nothing reads them, so
        that they may be written.

        Else LLVM would take accumulators with lanes that never change apart, lane by lane.
        """
        env = self.environment
        fixed = self.places[buffer].bound | {env.lane}
        return all(
            (isinstance(v, Symbol) or v in fixed) and not reads(c)
            for c in env.conditions
            for v in free_variables(c)
        )

    def _all_lanes_exist(self, buffer: Buffer, start: Offset, lanes: int) -> bool:
        """True for a register buffer in which all lanes, active or not, lie within bounds."""
        if buffer.scope != "register":
            return False
        size = buffer.layout.size(buffer.shape)
        return is_nonnegative(start.expr) and known_le(start.plus(lanes).expr, size)

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


def kind_suffix(element: str, lanes: int) -> str:
    """The mangled name of a vector type in an intrinsic."""
    return f"v{lanes}" + {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
