# SPDX-License-Identifier: Apache-2.0
"""Loops, access patterns, masks, guards and scratch memory of kernels, executed and compared with
numpy.
"""

import re
from typing import Any

import numpy as np
import pytest

from tilewright.codegen.llvm.compile import compile_assembly
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.dtypes import F32, I32, I64, INDEX, U8
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import (
    Binary,
    Cast,
    Expr,
    Guard,
    Read,
    Scalar,
    Symbol,
    Var,
    const,
    index,
)
from tilewright.ir.layout import Layout
from tilewright.ir.loop import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Let,
    Stmt,
    Store,
    While,
    nest,
    seq,
)
from tilewright.ir.simplify import ceildiv, compare, floordiv, mod
from tilewright.ir.target import parse_target
from tilewright.ir.types import tensor
from tilewright.ir.value_expr import logical_and

NATIVE = parse_target("native")
RNG = np.random.default_rng(3)


def var(name: str, extent: Any) -> Var:
    return Var(name, index(extent))


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def f32(name: str, *shape: Any, scope: str = "global", layout: Layout | None = None) -> Buffer:
    return buffer(name, tensor(F32, shape, layout), scope)


def kernel(name: str, inputs: Any, outputs: Any, body: Stmt, symbols: Any = ()) -> Kernel:
    return Kernel(name, tuple(inputs), tuple(outputs), tuple(symbols), (), body)


def test_parallel_loop_runs_the_given_tasks(run: Any) -> None:
    n = Symbol("n")
    x, y = f32("x", n, 4), f32("y", n, 4)
    i, j = var("i", n), var("j", 4)
    body = nest([(i, "parallel"), (j, "vectorized")], Store(y, (i, j), Read(x, (i, j)) * 2.0))
    k = kernel("tasks", [x], [y], body, [n])
    a, b = floats(6, 4), np.zeros((6, 4), np.float32)
    run(k, [a, b], [6], tasks=(2, 5))
    assert np.array_equal(b[2:5], 2 * a[2:5]) and not b[:2].any() and not b[5:].any()
    run(k, [a, b], [6], tasks=(3, 3))
    run(k, [a, b], [6])
    assert np.array_equal(b, 2 * a)


def test_body_without_parallel_loop_runs_once(run: Any) -> None:
    x, y = f32("x"), f32("y")
    k = kernel("once", [x], [y], Store(y, (), Read(x, ()) + 1.0))
    a, b = np.float32([2]), np.zeros(1, np.float32)
    run(k, [a, b], tasks=(0, 0))
    assert b[0] == 0
    run(k, [a, b])
    assert b[0] == 3


@pytest.mark.parametrize("kind", ["serial", "unrolled", "vectorized"])
@pytest.mark.parametrize(
    "access",
    ["v", "15 - v", "2*v + 1", "3*v", "v // 2", "(v*5) % 16", "7", "v*s"],
)
def test_access_patterns(run: Any, kind: str, access: str) -> None:
    s = Symbol("s")
    x, y = f32("x", 64), f32("y", 16)
    v = var("v", 16)
    positions: dict[str, Expr] = {
        "v": v, "15 - v": 15 - v, "2*v + 1": v * 2 + 1, "3*v": v * 3, "v // 2": floordiv(v, 2),
        "(v*5) % 16": mod(v * 5, 16), "7": index(7), "v*s": v * s,
    }  # fmt: skip
    position = positions[access]
    numbers = [eval(access, {"v": i, "s": 3}) for i in range(16)]
    a, b = floats(64), np.zeros(16, np.float32)
    name = re.sub(r"\W", "_", f"read {access} {kind}")
    run(
        kernel(name, [x], [y], For(v, kind, Store(y, (v,), Read(x, (position,)))), [s]), [a, b], [3]
    )
    assert np.array_equal(b, a[numbers])
    c, d = floats(16), np.zeros(64, np.float32)
    expected = d.copy()
    for i, p in enumerate(numbers):
        expected[p] = c[i]
    name = name.replace("read", "write")
    run(
        kernel(name, [y], [x], For(v, kind, Store(x, (position,), Read(y, (v,)))), [s]), [c, d], [3]
    )
    assert np.array_equal(d, expected)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 13, 16])
@pytest.mark.parametrize("position", ["v", "-v", "3*v"])
def test_masked_tail_touches_nothing_behind(run: Any, count: int, position: str) -> None:
    n = Symbol("n", 0)
    x, y = f32("x", 64), f32("y", 64)
    o, v = var("o", 2), var("v", 8)
    i = o * 8 + v
    p = {"v": i, "-v": 15 - i, "3*v": i * 3}[position]
    body = For(
        o, "serial", For(v, "vectorized", If(compare("lt", i, n), Store(y, (p,), Read(x, (p,)))))
    )
    a, b = floats(64), np.zeros(64, np.float32)
    name = re.sub(r"\W", "_", f"tail {position}")
    run(kernel(name, [x], [y], body, [n]), [a, b], [count])
    positions = [{"v": j, "-v": 15 - j, "3*v": j * 3}[position] for j in range(count)]
    expected = np.zeros(64, np.float32)
    expected[positions] = a[positions]
    assert np.array_equal(b, expected)


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_guard_reads_only_where_it_holds(run: Any, kind: str) -> None:
    """A row of length n is padded by 3 on both sides; its neighbours in memory are NaN, far ones
    unmapped.
    """
    n = Symbol("n")
    x, y = f32("x", n), f32("y", n + 6)
    o, v = var("o", ceildiv(n + 6, 8)), var("v", 8)
    i = o * 8 + v
    inside = logical_and(compare("ge", i, 3), compare("lt", i, n + 3))
    store = Store(y, (i,), Guard(inside, Read(x, (i - 3,)), const(-1.0, F32)))
    body = For(o, "serial", For(v, kind, If(compare("lt", i, n + 6), store)))
    a, b = floats(10), np.zeros(16, np.float32)
    run(kernel(f"padded_{kind}", [x], [y], body, [n]), [a, b], [10])
    assert np.array_equal(b, np.pad(a, 3, constant_values=-1))


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_guard_protects_gathers_and_uniform_reads(run: Any, kind: str) -> None:
    """Inactive lanes hold indices far outside of memory; a uniform read under no active lane is
    not made.
    """
    idx = buffer("idx", tensor(I64, (8,)))
    x, y = f32("x", 100), f32("y", 8)
    v = var("v", 8)
    position = Cast(Read(idx, (v,)), INDEX)
    active = compare("lt", Read(idx, (v,)), const(100, I64))
    never = compare("gt", Read(idx, (v,)), const(1 << 50, I64))
    far = Guard(never, Read(x, (index(1 << 45),)), const(0.5, F32))
    store = Store(y, (v,), Guard(active, Read(x, (position,)), const(-1.0, F32)) + far)
    a, b = floats(100), np.zeros(8, np.float32)
    indices = np.array([0, 99, 1 << 40, 5, 5, 1 << 45, 7, 1 << 44], np.int64)
    run(kernel(f"gathered_{kind}", [x, idx], [y], For(v, kind, store)), [a, indices, b])
    expected = np.where(indices < 100, a[np.minimum(indices, 99)], -1) + np.float32(0.5)
    assert np.array_equal(b, expected)


def test_masked_scatter_by_data(run: Any) -> None:
    idx = buffer("idx", tensor(I64, (8,)))
    x, y = f32("x", 8), f32("y", 100)
    v = var("v", 8)
    where = Cast(Read(idx, (v,)), INDEX)
    body = If(compare("lt", Read(idx, (v,)), const(100, I64)), Store(y, (where,), Read(x, (v,))))
    a, b = floats(8), np.zeros(100, np.float32)
    indices = np.array([3, 99, 1 << 40, 5, 3, 1 << 45, 7, 1 << 44], np.int64)
    run(kernel("scattered", [x, idx], [y], For(v, "vectorized", body)), [a, indices, b])
    expected = np.zeros(100, np.float32)
    for p, value in zip(indices, a):
        if p < 100:
            expected[p] = value
    assert np.array_equal(b, expected)


def test_blocked_layout(run: Any) -> None:
    n = Symbol("n")
    blocked = Layout((0, 1), ((1, 16),))
    x, y = f32("x", n, 32), f32("y", n, 32, layout=blocked)
    i, j, v = var("i", n), var("j", 4), var("v", 8)
    store = Store(y, (i, j * 8 + v), Read(x, (i, j * 8 + v)))
    k = kernel(
        "block_layout",
        [x],
        [y],
        nest([(i, "serial"), (j, "serial"), (v, "vectorized")], store),
        [n],
    )
    a, b = floats(5, 32), np.zeros((5, 2, 16), np.float32)
    run(k, [a, b], [5])
    assert np.array_equal(b, a.reshape(5, 2, 16))
    assert "insertelement" not in emit_kernel(k, NATIVE), "A block of 16 holds two whole vectors."


def test_register_buffers_of_vector_lanes_are_private(run: Any) -> None:
    """Each lane sorts its own four numbers, with scratch in registers and in the workspace."""
    for scope in ("register", "workspace"):
        x, y = f32("x", 8, 4), f32("y", 8, 4)
        t = f32("t", 4, scope=scope)
        v, i, a, b = var("v", 8), var("i", 4), var("a", 4), var("b", 3)
        low = Binary("min", Read(t, (b,)), Read(t, (b + 1,)), F32)
        high = Binary("max", Read(t, (b,)), Read(t, (b + 1,)), F32)
        low_s, high_s = Scalar("low", F32), Scalar("high", F32)
        swap = Let(
            low_s, low, Let(high_s, high, seq([Store(t, (b,), low_s), Store(t, (b + 1,), high_s)]))
        )
        body = seq(
            [
                For(i, "unrolled", Store(t, (i,), Read(x, (v, i)))),
                nest([(a, "unrolled"), (b, "unrolled")], swap),
                For(var("o", 4), "unrolled", Store(y, (v, var("o", 4)), Read(t, (var("o", 4),)))),
            ]
        )
        data, result = floats(8, 4), np.zeros((8, 4), np.float32)
        k = kernel(f"sort_{scope}", [x], [y], For(v, "vectorized", Alloc(t, body)))
        run(k, [data, result])
        assert np.array_equal(result, np.sort(data, 1))


def test_symbolic_workspace(run: Any) -> None:
    n = Symbol("n", 1)
    x, y = f32("x", n), f32("y", n)
    t, u = f32("t", n, scope="workspace"), f32("u", n, scope="workspace")
    i, j, k = var("i", n), var("j", n), var("k", n)
    body = seq(
        [
            For(i, "serial", Store(t, (i,), Read(x, (i,)) + 1.0)),
            For(j, "serial", Store(u, (n - 1 - j,), Read(t, (j,)))),
            For(k, "serial", Store(y, (k,), Read(u, (k,)) * Read(t, (k,)))),
        ]
    )
    a, b = floats(37), np.zeros(37, np.float32)
    run(kernel("scratch", [x], [y], Alloc(t, Alloc(u, body)), [n]), [a, b], [37])
    assert np.array_equal(b, (a + 1)[::-1] * (a + 1))


def test_while_and_let(run: Any) -> None:
    """Collatz steps; also inside a vectorised loop, which cannot run in lockstep."""
    x, y = buffer("x", tensor(I64, (8,))), buffer("y", tensor(I64, (8,)))
    state = buffer("state", tensor(I64, (2,)), "register")
    zero, one = index(0), index(1)
    now = Scalar("now", I64)
    even = compare("eq", Binary("mod", now, const(2, I64), I64), const(0, I64))
    step = Let(
        now,
        Read(state, (zero,)),
        seq(
            [
                If(
                    even,
                    Store(state, (zero,), Binary("div", now, const(2, I64), I64)),
                    Store(state, (zero,), now * 3 + 1),
                ),
                Store(state, (one,), Read(state, (one,)) + 1),
            ]
        ),
    )

    def collatz(v: int) -> int:
        count = 0
        while v != 1:
            v, count = (v // 2 if v % 2 == 0 else 3 * v + 1), count + 1
        return count

    for kind in ("serial", "vectorized"):
        i = var("i", 8)
        body = seq(
            [
                Store(state, (zero,), Read(x, (i,))),
                Store(state, (one,), const(0, I64)),
                While(compare("ne", Read(state, (zero,)), const(1, I64)), step),
                Store(y, (i,), Read(state, (one,))),
            ]
        )
        a, b = np.arange(1, 9), np.zeros(8, np.int64)
        run(kernel(f"collatz_{kind}", [x], [y], For(i, kind, Alloc(state, body))), [a, b])
        assert b.tolist() == [collatz(v) for v in range(1, 9)]


def test_memory_is_read_anew_after_a_store(run: Any) -> None:
    x, y = f32("x", 4), f32("y", 4)
    i, zero = var("i", 3), index(0)
    body = seq(
        [
            Store(y, (zero,), Read(x, (zero,))),
            For(i, "serial", Store(y, (i + 1,), Read(y, (i,)) + Read(y, (zero,)))),
            Store(y, (zero,), Read(y, (zero,)) + Read(y, (index(3),))),
        ]
    )
    a, b = np.float32([2, 0, 0, 0]), np.zeros(4, np.float32)
    run(kernel("again", [x], [y], body), [a, b])
    assert b.tolist() == [10, 4, 6, 8]


def test_triangular_loop(run: Any) -> None:
    n = Symbol("n")
    x, y = f32("x", n, n), f32("y", n, n)
    i = var("i", n)
    j = Var("j", i + 1)
    k = kernel(
        "tril",
        [x],
        [y],
        nest([(i, "serial"), (j, "serial")], Store(y, (i, j), Read(x, (i, j)))),
        [n],
    )
    a, b = floats(5, 5), np.zeros((5, 5), np.float32)
    run(k, [a, b], [5])
    assert np.array_equal(b, np.tril(a))


def test_index_arithmetic_of_negative_numbers(run: Any) -> None:
    y = buffer("y", tensor(I64, (21, 4)))
    i, zero = var("i", 21), Symbol("zero", 0)
    numbers = [
        floordiv(i * 3 - 30, 7), mod(i * 3 - 30, 7),
        floordiv(i - 10, zero + 4), mod(i - 10, zero + 4),
    ]  # fmt: skip
    for kind in ("serial", "vectorized"):
        stores = seq(Store(y, (i, index(c)), Cast(e, I64)) for c, e in enumerate(numbers))
        result = np.zeros((21, 4), np.int64)
        run(kernel(f"floor_{kind}", [], [y], For(i, kind, stores), [zero]), [result], [0])
        n = np.arange(21)
        expected = [(3 * n - 30) // 7, (3 * n - 30) % 7, (n - 10) // 4, (n - 10) % 4]
        assert np.array_equal(result, np.stack(expected, 1))


def gemm_tile(rows: int, panels: int, depth: int, unroll: int) -> Kernel:
    a, b = f32("a", depth, rows), f32("b", depth, panels * 8)
    c = f32("c", rows, panels * 8)
    acc = f32("acc", rows, panels * 8, scope="register")
    ko, ki = var("ko", depth // unroll), var("ki", unroll)
    k = ko * unroll + ki

    def tile(tag: str) -> tuple[list[tuple[Var, str]], tuple[Expr, Expr]]:
        m, n, v = var(f"m{tag}", rows), var(f"n{tag}", panels), var(f"v{tag}", 8)
        return [(m, "unrolled"), (n, "unrolled"), (v, "vectorized")], (m, n * 8 + v)

    (init_loops, init), (loops, at), (out_loops, out) = tile("0"), tile("1"), tile("2")
    update = Store(acc, at, Read(acc, at) + Read(a, (k, at[0])) * Read(b, (k, at[1])))
    body = seq(
        [
            nest(init_loops, Block("mm", "init", init, Store(acc, init, const(0.0, F32)))),
            nest(
                [(ko, "serial"), (ki, "unrolled"), *loops], Block("mm", "update", (*at, k), update)
            ),
            nest(out_loops, Store(c, out, Read(acc, out))),
        ]
    )
    return kernel(f"gemm_{rows}_{panels}", [a, b], [c], Alloc(acc, body))


def test_register_tile_has_no_spills(run: Any) -> None:
    k = gemm_tile(6, 2, 256, 8)
    a, b, c = floats(256, 6), floats(256, 16), np.zeros((6, 16), np.float32)
    run(k, [a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float64).T @ b, rtol=0, atol=1e-4)
    assembly = compile_assembly(
        emit_kernel(k, parse_target("x86-64-v3")), parse_target("x86-64-v3")
    )
    loop = max(re.findall(r"^\.LBB\w+:.*?^\s+j\w+", assembly, re.M | re.S), key=len)
    assert len(re.findall(r"vfmadd\w+ps", loop)) == 96
    assert len(re.findall(r"vbroadcastss", loop)) == 48
    assert len(re.findall(r"vmovups", loop)) == 16
    assert "rsp" not in loop and "vmovaps" not in loop


def test_integer_widening_multiply(run: Any) -> None:
    x, y, z = (
        buffer("x", tensor(U8, (32,))),
        buffer("y", tensor(U8, (32,))),
        buffer("z", tensor(I32, (32,))),
    )
    v = var("v", 32)
    product = Cast(Read(x, (v,)), I32) * Cast(Read(y, (v,)), I32)
    a, b = (RNG.integers(0, 256, 32).astype(np.uint8) for _ in range(2))
    c = np.zeros(32, np.int32)
    run(kernel("widen", [x, y], [z], For(v, "vectorized", Store(z, (v,), product))), [a, b, c])
    assert np.array_equal(c, a.astype(np.int32) * b)


def test_deep_expression(run: Any) -> None:
    x, y = f32("x", 8), f32("y", 8)
    v = var("v", 8)
    e: Expr = Read(x, (v,))
    for _ in range(3000):
        e = e + 1.0
    a, b = floats(8), np.zeros(8, np.float32)
    run(kernel("deep", [x], [y], For(v, "vectorized", Store(y, (v,), e))), [a, b])
    np.testing.assert_allclose(b, a + 3000, rtol=1e-5)


def test_errors_name_the_kernel_and_the_way_out() -> None:
    n = Symbol("n")
    x = f32("x", n)
    v = var("v", n)
    k = kernel("bad", [], [x], For(v, "vectorized", Store(x, (v,), const(0.0, F32))), [n])
    with pytest.raises(
        CodegenError, match=r"Kernel 'bad': Loop 'v' is vectorized, .* Split it first\."
    ):
        emit_kernel(k, NATIVE)
    k = kernel("loose", [], [x], Store(x, (v,), const(0.0, F32)), [n])
    with pytest.raises(CodegenError, match="Variable 'v' is used outside of the loop"):
        emit_kernel(k, NATIVE)
