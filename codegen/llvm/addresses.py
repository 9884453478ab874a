# SPDX-License-Identifier: Apache-2.0
"""Where buffers lie, and the addresses of their elements.

A buffer's layout flattens logical indices to one offset in elements: a number plus terms in loop
variables and symbols (:class:`Offset`). The copies of an unrolled loop differ in the number only,
so what is known of the terms, and the address that they lead to, is found once and shared; the
number ends up in an addressing mode.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.codegen.llvm.builder import Builder, Module, Value
from tilewright.codegen.llvm.environment import Environment, is_pure
from tilewright.codegen.llvm.indices import IndexEmitter, Terms, integer_constant, split_lane
from tilewright.codegen.llvm.small_floats import has_half_conversions
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F16, DType
from tilewright.ir.expr import (
    ZERO,
    Const,
    Expr,
    IndexOp,
    Scalar,
    Var,
    add,
    free_variables,
    index,
    mul,
    polynomial,
    terms_of,
)
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import Target


@dataclass
class Place:
    """Where a buffer lies. ``private`` is the lane variable of the loop that it was allocated in:
    each lane has its own copy, interleaved. ``alias`` is the metadata of its accesses; ``align``
    that of its start. ``bound`` are the variables that had one value where it was allocated.
    """

    pointer: Value
    depth: int
    align: int
    read_only: bool = False
    private: Var | None = None
    lanes: int = 0
    alias: str = ""
    bound: frozenset[Expr] = frozenset()


class Offset(NamedTuple):
    """The position of an element: ``terms``, an expression without a constant, plus ``number``."""

    terms: Expr
    number: int

    def plus(self, number: int) -> "Offset":
        return Offset(self.terms, self.number + number)

    @property
    def expr(self) -> Expr:
        return add(self.terms, self.number)


def split_offset(e: Expr) -> Offset:
    """An index expression as terms and a number."""
    terms = terms_of(e)
    if not terms or terms[-1][0]:
        return Offset(e, 0)
    return Offset(polynomial(dict(terms[:-1])), terms[-1][1])


class Access(NamedTuple):
    """How an offset depends on the vectorised variable: ``stride * lane + rest`` for a constant
    stride (0: not at all), else ``stride`` is None.
    """

    stride: int | None
    rest: Offset


def memory_element(dtype: DType, target: Target) -> str:
    """The LLVM type of a stored element."""
    if dtype is F16 and has_half_conversions(target):
        return "half"
    if dtype.is_float and dtype.bits >= 32:
        return "double" if dtype.bits == 64 else "float"
    return f"i{8 * dtype.bytes}"


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


def flat_offset(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The position of an element in its buffer, in elements; remembered by the buffer."""
    memo = buffer._memo
    key = ("offset", indices)
    known: Expr | None = memo.get(key)
    if known is None:
        known = memo[key] = buffer.layout.offset(buffer.shape, indices)
    return known


def _cycle(e: Expr, lane: Var | None) -> int:
    """The ``m`` of ``lane % m``; 0 for other expressions."""
    if isinstance(e, IndexOp) and e.op == "mod" and e.a is lane and isinstance(e.b, Const):
        return int(e.b.literal)
    return 0


class Addresses:
    """Emits the addresses of elements."""

    def __init__(self, builder: Builder, environment: Environment, indices: IndexEmitter) -> None:
        self.builder = builder
        self.environment = environment
        self.indices = indices
        self.places: dict[Buffer, Place] = {}
        self._accesses: dict[tuple[Expr, Var], Access] = {}

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Offset:
        """The position of an element, numbers of unrolled loops filled in."""
        env, place = self.environment, self.places[buffer]
        flat = flat_offset(buffer, indices)
        offset = Offset(*env.split(flat)) if env.constants else split_offset(flat)
        if place.private is None:
            return offset
        interleaved = add(mul(offset.terms, place.lanes), env.resolve(place.private))
        terms, number = split_offset(interleaved)
        return Offset(terms, number + offset.number * place.lanes)

    def access(self, offset: Offset) -> Access:
        """How an offset depends on the lanes."""
        env, terms = self.environment, offset.terms
        if env.lane is None:
            return Access(0, offset)
        key = (terms, env.lane)
        known = self._accesses.get(key)
        if known is None:
            known = self._classified(terms, env.lane)
            # What a scalar holds may change.
            if not any(isinstance(v, Scalar) for v in free_variables(terms)):
                self._accesses[key] = known
        return Access(known.stride, known.rest.plus(offset.number))

    def _classified(self, terms: Expr, lane: Var) -> Access:
        env = self.environment
        if not env.varies(terms):
            return Access(0, Offset(terms, 0))
        split = split_lane(terms, lane)
        if split is None or env.varies(split[1]):
            return Access(None, Offset(terms, 0))
        stride = integer_constant(split[0])
        return Access(stride, Offset(terms if stride is None else split[1], 0))

    def period(self, offset: Offset) -> tuple[int, Offset] | None:
        """How many elements the lanes go through again and again, one after another, and where
        these begin; None for other accesses.
        """
        lane = self.environment.lane
        terms = terms_of(offset.terms)
        along = [m for m, factor in terms if factor == 1 and len(m) == 1 and _cycle(m[0], lane)]
        rest = polynomial({m: factor for m, factor in terms if m not in along})
        if len(along) != 1 or self.environment.varies(rest):
            return None
        return _cycle(along[0][0], lane), Offset(rest, offset.number)

    # --- pointers ---------------------------------------------------------------------------------

    def pointer(self, buffer: Buffer, offset: Offset) -> Value:
        """The address of the element at an offset that is the same in all lanes."""
        pointer = self._pointer(buffer, terms_of(offset.terms))
        if not offset.number:
            return pointer
        key = (pointer.text, offset.number)
        known = self.environment.recall_anywhere(key)
        if known is None:
            distance = offset.number * buffer.dtype.bytes
            moved = self.builder.emit(f"getelementptr i8, {pointer}, i64 {distance}", "ptr")
            known = self.environment.remember(key, self.environment.depth, moved)
        return known

    def _pointer(self, buffer: Buffer, terms: Terms) -> Value:
        env, place = self.environment, self.places[buffer]
        if not terms:
            return place.pointer
        key = (place.pointer.text, terms)
        known = env.recall_anywhere(key) or env.recall_in_statement(key)
        if known is not None:
            return known
        pure = all(is_pure(a) for m, _ in terms for a in m)
        depths = [max(self.indices.depth(m), place.depth) for m, _ in terms]
        home = max(depths) if pure else env.depth
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

    def lane_pointers(self, buffer: Buffer, offset: Offset) -> list[Value]:
        """The address of every lane's element."""
        env, b = self.environment, self.builder
        lane = env.lane
        assert lane is not None
        static = all(v is lane or not env.varies(v) for v in free_variables(offset.terms))
        if static and is_pure(offset.terms):
            numbers = [index(i) for i in range(env.lanes)]
            moved = [split_offset(substitute(offset.terms, {lane: n})) for n in numbers]
            return [self.pointer(buffer, m.plus(offset.number)) for m in moved]
        positions = self.indices.sum(terms_of(offset.terms))
        element = memory_element(buffer.dtype, b.target)
        base = self.pointer(buffer, Offset(ZERO, offset.number))
        return [
            b.emit(f"getelementptr {element}, {base}, {b.extract(positions, i)}", "ptr")
            for i in range(env.lanes)
        ]

    def align(self, buffer: Buffer, offset: Offset) -> int:
        """The alignment known of the element at ``offset``."""
        place, size = self.places[buffer], buffer.dtype.bytes
        if not isinstance(offset.terms, Const):
            return size
        position = offset.number * size
        return place.align if position == 0 else min(place.align, position & -position)
