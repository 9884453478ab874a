# SPDX-License-Identifier: Apache-2.0
"""Join axes that always go together, and drop axes of extent 1.

Two dims are one dim if in every buffer they lie next to each other in memory, in the same order,
and every stage runs over both with plain indices. A bias-and-GELU over [batch, seq, 3072] becomes
one loop nest over [batch*seq, 3072] or less, so that one kernel serves all ranks, vectors are long,
and the parallel loop has enough iterations.

Dims are put in classes by union-find: an axis used as the plain index of a buffer's dim is in that
dim's class.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import ONE, ZERO, Expr, Read, Var, free_variables, mul, walk
from tilewright.ir.layout import Layout
from tilewright.ir.rewrite import rewrite, substitute
from tilewright.ir.stage import Stage
from tilewright.passes.lower.collect import Computation

_Dim = tuple[Buffer, int]


class _Classes:
    """Union-find over axes and buffer dims, with the classes that must stay as they are."""

    def __init__(self) -> None:
        self._parent: dict[object, object] = {}
        self.fixed: set[object] = set()

    def find(self, item: object) -> object:
        root = item
        while self._parent.get(root, root) is not root:
            root = self._parent[root]
        self._parent[item] = root
        return root

    def join(self, a: object, b: object) -> None:
        ra, rb = self.find(a), self.find(b)
        if ra is not rb:
            self._parent[rb] = ra
            if rb in self.fixed:
                self.fixed.add(ra)

    def fix(self, item: object) -> None:
        self.fixed.add(self.find(item))


def collapse_axes(c: Computation) -> Computation:
    """Drop unit axes, then join neighbouring dims as long as there is a pair that allows it."""
    stages = tuple(map(_without_single_step, c.stages))
    c = _drop_unit_axes(Computation(stages, c.inputs, c.outputs, c.arguments))
    while True:
        pair = _find_pair(c)
        if pair is None:
            return c
        c = _merge(c, *pair)


# --- unit axes ---


def _without_single_step(s: Stage) -> Stage:
    """A scan of one step as a map: its last axis has a meaning, and is not dropped like others."""
    if s.kind != "scan" or s.axes[-1].extent is not ONE:
        return s
    start: dict[Expr, Expr] = dict(zip(s.accumulators, s.init, strict=True))
    values = s.init if s.exclusive else tuple(substitute(v, start) for v in s.values)
    return s.replace(kind="map", accumulators=(), init=(), values=values, exclusive=False)


def _drop_unit_axes(c: Computation) -> Computation:
    """Remove axes of extent 1 from stages, and dims of extent 1 from buffers."""

    def shrunk(b: Buffer) -> Buffer:
        keep = [
            d
            for d in range(b.rank)
            if b.shape[d] is not ONE or any(a == d for a, _ in b.layout.blocks)
        ]
        if len(keep) == b.rank:
            return b
        position = {d: i for i, d in enumerate(keep)}
        order = tuple(position[d] for d in b.layout.order if d in position)
        blocks = tuple((position[a], f) for a, f in b.layout.blocks)
        return Buffer(
            b.name, b.dtype, tuple(b.shape[d] for d in keep), Layout(order, blocks), b.scope
        )

    def indices(b: Buffer, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        blocked = {a for a, _ in b.layout.blocks}
        return tuple(i for d, i in enumerate(at) if b.shape[d] is not ONE or d in blocked)

    return _rebuild(c, shrunk, indices, {})


def _rebuild(
    c: Computation,
    new_buffer: Callable[[Buffer], Buffer],
    new_indices: Callable[[Buffer, tuple[Expr, ...]], tuple[Expr, ...]],
    axis_groups: dict[Var, tuple[Var, Expr]],
) -> Computation:
    """The computation over other buffers; ``axis_groups`` maps an axis to (new axis, its value in
    terms of it). Of the axes that one replaces, the one whose value it is keeps its place.
    """
    memo: dict[Buffer, Buffer] = {}

    def mapped(b: Buffer) -> Buffer:
        if b not in memo:
            memo[b] = new_buffer(b)
        return memo[b]

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Read):
            return Read(
                mapped(e.buffer), tuple(rewrite(i, leaf) for i in new_indices(e.buffer, e.indices))
            )
        if isinstance(e, Var):
            return ZERO if e.extent is ONE else axis_groups[e][1] if e in axis_groups else None
        return None

    def axes(items: tuple[Var, ...]) -> tuple[Var, ...]:
        pairs = (axis_groups.get(v, (v, v)) for v in items if v.extent is not ONE)
        return tuple(new for new, value in pairs if value is new)

    def rebuilt(s: Stage) -> Stage:
        def exprs(items: Iterable[Expr]) -> tuple[Expr, ...]:
            return tuple(rewrite(e, leaf) for e in items)

        targets = exprs(new_indices(s.output, s.targets))
        return s.replace(
            axes=axes(s.axes),
            reduce_axes=axes(s.reduce_axes),
            outputs=tuple(map(mapped, s.outputs)),
            targets=targets,
            init=exprs(s.init),
            values=exprs(s.values),
        )

    stages = tuple(rebuilt(s) for s in c.stages)
    return Computation(
        stages, tuple(map(mapped, c.inputs)), tuple(map(mapped, c.outputs)), c.arguments
    )


# --- joining ---


def _find_pair(c: Computation) -> tuple[_Classes, object, object] | None:
    classes = _classify(c)
    buffers = _buffers(c)
    for b in buffers:
        for outer, inner in pairwise(b.layout.order):
            a, z = classes.find((b, outer)), classes.find((b, inner))
            if a is not z and not {a, z} & classes.fixed and _together(c, buffers, classes, a, z):
                return classes, a, z
    return None


def _buffers(c: Computation) -> list[Buffer]:
    found: dict[Buffer, None] = dict.fromkeys((*c.inputs, *c.outputs))
    for s in c.stages:
        found.update(dict.fromkeys(s.outputs))
        found.update(dict.fromkeys(r.buffer for r in s.reads()))
    return list(found)


def _classify(c: Computation) -> _Classes:
    classes = _Classes()
    extents: dict[object, Expr] = {}

    def note(item: object, extent: Expr) -> None:
        # A class whose members differ in extent cannot be joined with another.
        if extents.setdefault(item, extent) is not extent:
            classes.fix(item)

    for s in c.stages:
        if s.kind in ("scan", "opaque", "scatter"):
            for item in (*s.axes, *s.reduce_axes):
                classes.fix(item)
        accesses = [(b, s.targets) for b in s.outputs] + [(r.buffer, r.indices) for r in s.reads()]
        for b, at in accesses:
            for d, i in enumerate(at):
                if isinstance(i, Var) and i.extent is b.shape[d]:
                    classes.join((b, d), i)
                else:
                    classes.fix((b, d))
                    for v in free_variables(i):
                        classes.fix(v)
            for axis, _ in b.layout.blocks:
                classes.fix((b, axis))
        for v in _outside_indices(s):
            classes.fix(v)
    for s in c.stages:
        for v in (*s.axes, *s.reduce_axes):
            note(classes.find(v), v.extent)
            for w in free_variables(v.extent):
                classes.fix(w)
    return classes


def _outside_indices(s: Stage) -> set[Expr]:
    """Variables that a stage uses elsewhere than as part of an index."""
    found: set[Expr] = set()

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Var):
            found.add(e)
            return e
        if isinstance(e, Read):
            for i in e.indices:
                if any(isinstance(x, Read) for x in walk(i)):
                    found.update(free_variables(i))
            return e
        return None

    for e in (*s.init, *s.values):
        rewrite(e, leaf)
    return found


def _together(
    c: Computation, buffers: list[Buffer], classes: _Classes, a: object, z: object
) -> bool:
    for b in buffers:
        order = [classes.find((b, d)) for d in b.layout.order]
        if a not in order and z not in order:
            continue
        if order.count(a) != 1 or order.count(z) != 1 or order.index(z) != order.index(a) + 1:
            return False
    for s in c.stages:
        for axes in (s.axes, s.reduce_axes):
            members = [classes.find(v) for v in axes]
            if members.count(a) != members.count(z) or members.count(a) > 1:
                return False
            if axes is s.reduce_axes and a in members and members.index(z) != members.index(a) + 1:
                return False
    return True


def _merge(c: Computation, classes: _Classes, a: object, z: object) -> Computation:
    """Join class ``z`` into class ``a``, whose dim comes right before it in memory."""
    groups: dict[Var, tuple[Var, Expr]] = {}
    for s in c.stages:
        for axes in (s.axes, s.reduce_axes):
            outer = next((v for v in axes if classes.find(v) is a), None)
            inner = next((v for v in axes if classes.find(v) is z), None)
            if outer is not None and inner is not None:
                joined = Var(outer.name, mul(outer.extent, inner.extent))
                # Both appear only as plain indices, which ``indices`` below replaces.
                groups[outer] = (joined, joined)
                groups[inner] = (joined, ZERO)

    def position(b: Buffer) -> tuple[int, int] | None:
        found = [d for d in range(b.rank) if classes.find((b, d)) is a]
        return (
            (found[0], next(d for d in range(b.rank) if classes.find((b, d)) is z))
            if found
            else None
        )

    def joined_buffer(b: Buffer) -> Buffer:
        at = position(b)
        if at is None:
            return b
        outer, inner = at
        keep = [d for d in range(b.rank) if d != inner]
        renumbered = {d: i for i, d in enumerate(keep)}
        shape = tuple(mul(b.shape[d], b.shape[inner]) if d == outer else b.shape[d] for d in keep)
        order = tuple(renumbered[d] for d in b.layout.order if d != inner)
        blocks = tuple((renumbered[axis], f) for axis, f in b.layout.blocks)
        return Buffer(b.name, b.dtype, shape, Layout(order, blocks), b.scope)

    def indices(b: Buffer, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        where = position(b)
        return at if where is None else tuple(i for d, i in enumerate(at) if d != where[1])

    return _rebuild(c, joined_buffer, indices, groups)
