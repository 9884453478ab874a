# SPDX-License-Identifier: Apache-2.0
"""The proof against the interpreter: of many random changes to scheduled kernels, those that the
proof accepts compute what the stages say, in whatever order parallel loops run.

The direct arguments and isl must give the same verdict on each.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tilewright.ir.dtypes import F32
from tilewright.ir.errors import InterpreterError, ScheduleError
from tilewright.ir.expr import Expr, Read, Symbol, Var, free_variables, index, reads
from tilewright.ir.graph import ConstantStore, Node, Value
from tilewright.ir.interpreter.loops import interpret_kernel, logical_shape
from tilewright.ir.interpreter.stages import run_stages
from tilewright.ir.loop import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Seq,
    Stmt,
    Store,
    expressions,
    map_stmt,
    seq,
    substitute_stmt,
    walk,
)
from tilewright.ir.op import Op
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.softmax import Softmax
from tilewright.ir.rewrite import rewrite
from tilewright.ir.simplify import mod
from tilewright.ir.target import parse_target
from tilewright.ir.types import TensorType, tensor
from tilewright.passes.lower.kernel import lower_group
from tilewright.passes.schedule.defaults import default_candidates
from tilewright.passes.schedule.legality import prove

N = Symbol("n", 1, 40)
OPS: dict[str, tuple[Op, tuple[TensorType, ...]]] = {
    "matmul": (Matmul(), (tensor(F32, (N, 5)), tensor(F32, (5, 18)))),
    "softmax": (Softmax(1), (tensor(F32, (3, N)),)),
    "conv": (
        Conv((1, 1), (1, 1, 1, 1), (1, 1), 1),
        (tensor(F32, (1, 2, 4, 4)), tensor(F32, (3, 2, 3, 3))),
    ),
}
CHANGES = 40


def scheduled(name: str) -> Kernel:
    op, types = OPS[name]
    operands = [Value(t) for t in types]
    node = Node(op, operands, [], [], name)
    node.results = [Value(t, producer=node) for t in op.infer(types)]
    kernel = lower_group(node, ConstantStore()).kernel
    return next(iter(default_candidates(kernel, parse_target("x86-64-v3")))).kernel


# --- random changes: each maps a kernel to another, or to None where it does not apply ---


def replaced(kernel: Kernel, old: Stmt, new: Stmt) -> Kernel:
    return kernel.with_body(map_stmt(kernel.body, lambda s: new if s is old else None))


def all_of(kernel: Kernel, kind: type) -> list[Stmt]:
    return [s for s in walk(kernel.body) if isinstance(s, kind)]


def change_extent(kernel: Kernel, rng: random.Random) -> Kernel | None:
    loop = rng.choice(all_of(kernel, For))
    assert isinstance(loop, For)
    var = Var(loop.var.name, loop.var.extent + rng.choice((-1, 1)))
    return replaced(kernel, loop, For(var, loop.kind, substitute_stmt(loop.body, {loop.var: var})))


def change_kind(kernel: Kernel, rng: random.Random) -> Kernel | None:
    loop = rng.choice(all_of(kernel, For))
    assert isinstance(loop, For)
    return replaced(kernel, loop, For(loop.var, rng.choice(("parallel", "serial")), loop.body))


def interchange(kernel: Kernel, rng: random.Random) -> Kernel | None:
    pairs = [s for s in all_of(kernel, For) if isinstance(s, For) and isinstance(s.body, For)]
    outer = rng.choice(pairs)
    inner = outer.body
    assert isinstance(inner, For)
    if outer.var in free_variables(inner.var.extent):
        return None
    swapped = For(inner.var, inner.kind, For(outer.var, outer.kind, inner.body))
    return replaced(kernel, outer, swapped)


def swap_statements(kernel: Kernel, rng: random.Random) -> Kernel | None:
    chosen = rng.choice(all_of(kernel, Seq))
    assert isinstance(chosen, Seq)
    stmts = list(chosen.stmts)
    at = rng.randrange(len(stmts) - 1)
    stmts[at], stmts[at + 1] = stmts[at + 1], stmts[at]
    return replaced(kernel, chosen, seq(stmts))


def split_loop_body(kernel: Kernel, rng: random.Random) -> Kernel | None:
    loops = [s for s in all_of(kernel, For) if isinstance(s, For) and isinstance(s.body, Seq)]
    if not loops:
        return None
    loop = rng.choice(loops)
    assert isinstance(loop.body, Seq)
    at = rng.randrange(1, len(loop.body.stmts))
    parts = (loop.body.stmts[:at], loop.body.stmts[at:])
    return replaced(kernel, loop, seq(For(loop.var, loop.kind, seq(part)) for part in parts))


def drop_condition(kernel: Kernel, rng: random.Random) -> Kernel | None:
    found = all_of(kernel, If)
    if not found:
        return None
    chosen = rng.choice(found)
    assert isinstance(chosen, If)
    return replaced(kernel, chosen, chosen.then)


def raise_allocation(kernel: Kernel, rng: random.Random) -> Kernel | None:
    loops = [s for s in all_of(kernel, For) if isinstance(s, For) and isinstance(s.body, Alloc)]
    if not loops:
        return None
    loop = rng.choice(loops)
    assert isinstance(loop.body, Alloc)
    inner = For(loop.var, loop.kind, loop.body.body)
    return replaced(kernel, loop, Alloc(loop.body.buffer, inner))


def fold_buffer(kernel: Kernel, rng: random.Random) -> Kernel | None:
    """Index a local buffer modulo a small number along one dim."""
    allocations = [s for s in all_of(kernel, Alloc) if isinstance(s, Alloc) and s.buffer.rank]
    if not allocations:
        return None
    chosen = rng.choice(allocations).buffer
    dim, factor = rng.randrange(chosen.rank), rng.randint(1, 6)

    def folded(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(mod(e, factor) if d == dim else e for d, e in enumerate(indices))

    def on_expr(e: Expr) -> Expr:
        def leaf(node: Expr) -> Expr | None:
            mine = isinstance(node, Read) and node.buffer is chosen
            return Read(chosen, folded(node.indices)) if mine else None

        return rewrite(e, leaf)

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer is chosen:
            return Store(chosen, folded(s.indices), on_expr(s.value))
        return None

    return kernel.with_body(map_stmt(kernel.body, on_stmt, on_expr))


def change_index(kernel: Kernel, rng: random.Random) -> Kernel | None:
    """Move an index of one access in one block."""
    block = rng.choice(all_of(kernel, Block))
    touched: list[Read | Store] = [s for s in walk(block) if isinstance(s, Store)]
    touched += [r for s in walk(block) for e in expressions(s) for r in reads(e)]
    access = rng.choice([a for a in touched if a.indices])
    dim = rng.randrange(len(access.indices))
    other = rng.choice([*access.indices, access.indices[dim] + 1, access.indices[dim] - 1])
    indices = tuple(other if d == dim else e for d, e in enumerate(access.indices))
    if isinstance(access, Store):
        changed = map_stmt(
            block, lambda s: Store(s.buffer, indices, s.value) if s is access else None
        )
    else:
        new = Read(access.buffer, indices)
        changed = map_stmt(
            block, on_expr=lambda e: rewrite(e, lambda n: new if n is access else None)
        )
    return replaced(kernel, block, changed)


def change_variable(kernel: Kernel, rng: random.Random) -> Kernel | None:
    """Let a block, point and all, run at another value of one of its loops."""
    loop = rng.choice(all_of(kernel, For))
    assert isinstance(loop, For)
    block = rng.choice([s for s in walk(loop) if isinstance(s, Block)])
    last = loop.var.extent - 1
    value = rng.choice((loop.var + 1, last - loop.var, mod(loop.var, 3), index(0)))
    return replaced(kernel, block, substitute_stmt(block, {loop.var: value}))


Change = Callable[[Kernel, random.Random], Kernel | None]
ALL: tuple[Change, ...] = (
    change_extent,
    change_kind,
    interchange,
    swap_statements,
    split_loop_body,
    drop_condition,
    raise_allocation,
    fold_buffer,
    change_index,
    change_variable,
)


# --- verdicts ---


def is_accepted(kernel: Kernel, thorough: bool) -> bool:
    try:
        prove(kernel, thorough=thorough)
    except ScheduleError:
        return False
    return True


def runs(kernel: Kernel) -> Iterator[str]:
    """What goes wrong when the kernel runs."""
    rng = np.random.default_rng(0)
    for n in (1, 7, 33):
        symbols = {s.name: n for s in kernel.symbols}
        inputs = {
            b.name: rng.integers(-8, 8, logical_shape(b, symbols)).astype(b.dtype.numpy)
            for b in kernel.inputs
        }
        expected = run_stages(kernel.stages, inputs, symbols)
        for reverse in (False, True):
            try:
                found = interpret_kernel(kernel, inputs, symbols, reverse=reverse)
            except InterpreterError as error:
                yield str(error)
                continue
            for b in kernel.outputs:
                if not np.allclose(found[b.name], expected[b.name], rtol=1e-5):
                    yield f"'{b.name}' is wrong for n={n}, reverse={reverse}."


@pytest.mark.parametrize("name", OPS)
def test_what_the_proof_accepts_computes_the_stages(name: str) -> None:
    rng = random.Random(name)
    kernel = scheduled(name)
    verdicts: Counter[bool] = Counter()
    for _ in range(CHANGES):
        changed: Kernel | None = kernel
        for _ in range(rng.choice((1, 1, 2))):
            changed = changed and rng.choice(ALL)(changed, rng)
        if changed is None or changed is kernel:
            continue
        verdict = is_accepted(changed, thorough=False)
        assert is_accepted(changed, thorough=True) == verdict, changed
        verdicts[verdict] += 1
        if verdict:
            assert not list(runs(changed)), changed
    assert min(verdicts[True], verdicts[False]) >= 5
