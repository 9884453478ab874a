# SPDX-License-Identifier: Apache-2.0
"""Matrix products, convolutions and pools, drawn at random."""

import math
from collections.abc import Sequence

from tests.random_graphs.drawing import MOST_WORK, Drawing, draws
from tests.random_graphs.elementwise import broadcast
from tests.random_graphs.reductions import full
from tests.random_graphs.spec import Dim, Tensor, is_float


def product_bound(d: Drawing, x: Tensor, y: Tensor, terms: int) -> int | None:
    return None if x.bound is None or y.bound is None else x.bound * y.bound * max(terms, 1)


def worth(d: Drawing, dims: Sequence[Dim], terms: int) -> None:
    """Stops a contraction that would take too long for the references."""
    d.need(d.elements(dims) * terms <= MOST_WORK)


@draws(9)
def matmul(d: Drawing) -> None:
    x = d.float_value(lambda t: t.rank > 0)
    k = x.dims[-1]
    dims: tuple[Dim, ...] = (k, d.dim())
    if d.chance(0.15):
        dims = (k,)
    elif d.chance(0.3) and x.rank > 2:
        dims = (*(1 if d.chance(0.3) else v for v in x.dims[:-2]), *dims)
    y = d.fresh(x.dtype, dims)
    if d.chance(0.2):
        found = [t for t in d.tensors.values() if t.dtype == x.dtype and t.rank == 2]
        y = next((t for t in found if t.dims[0] == k), y)
    columns = y.dims[-1:] if y.rank > 1 else ()
    batch = broadcast(x.dims[:-2], y.dims[:-2])
    result = (*batch, *x.dims[-2:-1], *columns)
    worth(d, result, d.size(k))
    d.emit("MatMul", [x, y], result, bound=product_bound(d, x, y, d.size(k)))


@draws(3)
def scores(d: Drawing) -> None:
    """A product with a transposition, as in attention."""
    x = d.float_value(lambda t: t.rank > 1)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    y = d.emit(
        "Transpose", [x], [x.dims[i] for i in order], exact=x.exact, bound=x.bound, perm=order
    )
    dims = (*x.dims[:-1], x.dims[-2])
    worth(d, dims, d.size(x.dims[-1]))
    d.emit("MatMul", [x, y], dims, bound=product_bound(d, x, x, d.size(x.dims[-1])))


@draws(5)
def gemm(d: Drawing) -> None:
    x = d.float_value(lambda t: t.rank == 2)
    flip_x, flip_y = d.chance(0.3), d.chance(0.4)
    m, k = reversed(x.dims) if flip_x else x.dims
    n = d.dim()
    y = d.fresh(x.dtype, (n, k) if flip_y else (k, n))
    given = [x, y]
    options = {"transA": int(flip_x), "transB": int(flip_y)}
    bound = product_bound(d, x, y, d.size(k))
    if d.chance(0.3):
        options |= {"alpha": 0.5, "beta": 1.5}
        bound = None
    if d.chance(0.7):
        given.append(d.fresh(x.dtype, d.rng.choice(((n,), (1, n), (m, 1), (m, n), ()))))
        extra = given[2].bound
        bound = None if bound is None or extra is None else bound + extra
    worth(d, (m, n), d.size(k))
    d.emit("Gemm", given, (m, n), bound=bound, **options)


def window(
    d: Drawing, spatial: Sequence[Dim], *, dilate: bool = True
) -> tuple[list[int], dict[str, list[int]], list[Dim]]:
    """A kernel's shape, attributes, and the dims of the result."""
    kernel = [d.rng.choice((1, 2, 3, 3, 5)) for _ in spatial]
    strides = [d.rng.choice((1, 1, 2, 3)) for _ in spatial]
    dilations = [d.rng.choice((1, 1, 2)) if dilate else 1 for _ in spatial]
    # Pads less than the kernel, so that no window of a pool lies in them wholly.
    pads = [d.rng.randint(0, (k - 1) // 2) for k in (*kernel, *kernel)]
    dims = []
    for i, dim in enumerate(spatial):
        reach = dilations[i] * (kernel[i] - 1) + 1
        both, stride = pads[i] + pads[i + len(kernel)], strides[i]
        least = min(s[dim] for s in d.sizes) if isinstance(dim, str) else dim
        d.need(least + both >= reach)
        dims.append(d.derived(lambda s, b=both, r=reach, t=stride: (s + b - r) // t + 1, dim))
    return kernel, {"strides": strides, "dilations": dilations, "pads": pads}, dims


@draws(8)
def conv(d: Drawing) -> None:
    x = d.float_value(
        lambda t: t.rank in (3, 4, 5) and isinstance(t.dims[1], int) and t.dims[1] > 0
    )
    channels = int(x.dims[1])
    kernel, options, spatial = window(d, x.dims[2:])
    groups = d.rng.choice([g for g in (1, 1, 1, 2, 4, channels) if channels % g == 0])
    outputs = groups * d.rng.choice((1, 2, 3, 8, 16, 17)) if groups < 9 else groups
    w = d.fresh(x.dtype, (outputs, channels // groups, *kernel))
    given = [x, w]
    terms = channels // groups * math.prod(kernel)
    bound = product_bound(d, x, w, terms)
    if d.chance(0.6):
        given.append(d.fresh(x.dtype, (outputs,)))
        extra = given[2].bound
        bound = None if bound is None or extra is None else bound + extra
    dims = (x.dims[0], outputs, *spatial)
    worth(d, dims, terms)
    d.emit("Conv", given, dims, bound=bound, group=groups, **options)


@draws(2)
def conv_transpose(d: Drawing) -> None:
    x = d.float_value(
        lambda t: t.rank in (3, 4) and isinstance(t.dims[1], int) and t.dims[1] > 0 and full(d, t)
    )
    channels = int(x.dims[1])
    kernel = [d.rng.choice((1, 2, 3)) for _ in x.dims[2:]]
    strides = [d.rng.choice((1, 2)) for _ in kernel]
    outputs = d.rng.choice((1, 2, 3, 8, 17))
    w = d.fresh(x.dtype, (channels, outputs, *kernel))
    spatial = [
        d.derived(lambda s, k=k, t=t: (s - 1) * t + k, v)
        for v, k, t in zip(x.dims[2:], kernel, strides)
    ]
    dims = (x.dims[0], outputs, *spatial)
    terms = channels * math.prod(kernel)
    worth(d, dims, terms)
    d.emit("ConvTranspose", [x, w], dims, bound=product_bound(d, x, w, terms), strides=strides)


@draws(5)
def pool(d: Drawing) -> None:
    x = d.float_value(lambda t: t.rank in (3, 4) and full(d, t))
    if d.chance(0.25):
        op = d.rng.choice(("GlobalAveragePool", "GlobalMaxPool"))
        exact = op == "GlobalMaxPool" and x.exact
        d.emit(op, [x], (*x.dims[:2], *[1] * (x.rank - 2)), exact=exact)
        return
    op = d.rng.choice(("MaxPool", "AveragePool"))
    kernel, options, spatial = window(d, x.dims[2:])
    d.need(is_float(x.dtype))
    if op == "AveragePool" and d.chance(0.5):
        options["count_include_pad"] = 1  # type: ignore[assignment]
    dims = (*x.dims[:2], *spatial)
    d.emit(op, [x], dims, exact=op == "MaxPool" and x.exact, kernel_shape=kernel, **options)


@draws(3)
def einsum(d: Drawing) -> None:
    x = d.float_value(lambda t: t.rank == 3)
    b, i, j = x.dims
    equation, dims, result, terms = d.rng.choice(
        (
            ("bij,bkj->bik", (b, 5, j), (b, i, 5), j),
            ("bij,jk->kbi", (j, 9), (9, b, i), j),
            ("bij,bij->bi", (b, i, j), (b, i), j),
            ("bij,bij->bji", (b, i, j), (b, j, i), 1),
        )
    )
    y = d.fresh(x.dtype, dims)
    worth(d, result, d.size(terms))
    bound = product_bound(d, x, y, d.size(terms))
    d.emit("Einsum", [x, y], result, bound=bound, equation=equation)
