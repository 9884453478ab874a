# SPDX-License-Identifier: Apache-2.0
"""Draws a graph: operators one after another, on values that are there or on new inputs.

Each operator is a function that takes the :class:`Drawing`, chooses operands and attributes, and
emits nodes, or raises :class:`NoDraw` where nothing fits. Equal seeds draw equal graphs.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.random_graphs.spec import BF16, BOOL, FLOATS, INTS, Dim, Node, Spec, Tensor, is_float

# Around the widths of vectors and of blocks, on every level of x86-64.
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130, 257)
MOST_ELEMENTS, MOST_WORK = 20_000, 2_000_000
_SYMBOLS = ("n", "m")


class NoDraw(Exception):
    """No operands fit the operator that was drawn."""


OpDrawer = Callable[["Drawing"], None]
DRAWERS: list[tuple[int, OpDrawer]] = []


def draws(weight: int) -> Callable[[OpDrawer], OpDrawer]:
    """Registers an operator; the weight says how often it is drawn."""

    def register(function: OpDrawer) -> OpDrawer:
        DRAWERS.append((weight, function))
        return function

    return register


def exact_limit(dtype: np.dtype) -> int:
    """The greatest magnitude below which all integers are in the type."""
    if is_float(dtype):
        return 2 ** (int(ml_dtypes.finfo(dtype).nmant) + 1)
    return 2 if dtype == BOOL else int(np.iinfo(dtype).max)


class Drawing:
    """The graph so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.inputs: list[str] = []
        self.constants: dict[str, np.ndarray] = {}
        self.symbolic = self.rng.random() < 0.4
        self.empty = self.rng.random() < 0.08  # static dims of 0
        count = 2 if self.symbolic else 1
        self.sizes = [
            {s: self.rng.choice((0, *SIZES[:17])) for s in _SYMBOLS} for _ in range(count)
        ]
        self.sizes[0] = {s: max(1, v) for s, v in self.sizes[0].items()}
        self.floats = self.rng.choices(FLOATS, (60, 15, 10, 15))[0]
        self._count = 0

    # --- sizes ---

    def size(self, dim: Dim) -> int:
        """The greatest size that a dim has."""
        return dim if isinstance(dim, int) else max(s[dim] for s in self.sizes)

    def elements(self, dims: Sequence[Dim]) -> int:
        return math.prod(map(self.size, dims))

    def may_be_empty(self, dim: Dim) -> bool:
        return dim == 0 if isinstance(dim, int) else any(s[dim] == 0 for s in self.sizes)

    def dim(self) -> Dim:
        if self.symbolic and self.rng.random() < 0.4:
            return self.rng.choice(_SYMBOLS)
        return self.static_dim()

    def static_dim(self) -> int:
        if self.empty and self.rng.random() < 0.15:
            return 0
        return self.rng.choice(SIZES if self.rng.random() < 0.3 else SIZES[:14])

    def dims(self, rank: int) -> tuple[Dim, ...]:
        """Dims of that rank, together not too large."""
        while True:
            found = tuple(self.dim() for _ in range(rank))
            if self.elements(found) <= MOST_ELEMENTS:
                return found

    def derived(self, rule: Callable[..., int], *dims: Dim) -> Dim:
        """The dim that follows from others by a rule on sizes."""
        if all(isinstance(dim, int) for dim in dims):
            return rule(*dims)
        name = self._name("d")
        for sizes in self.sizes:
            sizes[name] = rule(*(dim if isinstance(dim, int) else sizes[dim] for dim in dims))
            self.need(0 <= sizes[name] <= MOST_ELEMENTS)
        return name

    def need(self, condition: object) -> None:
        if not condition:
            raise NoDraw

    # --- values ---

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def pick(self, fits: Callable[[Tensor], bool]) -> Tensor:
        """A value that fits, rather a late one than an early one."""
        found = [t for t in self.tensors.values() if t.name not in self.constants and fits(t)]
        self.need(found)
        return self.rng.choices(found, [1 + 2 * i for i in range(len(found))])[0]

    def float_value(self, fits: Callable[[Tensor], bool] = lambda t: True) -> Tensor:
        """A value of a float type, sometimes a new input."""
        found = [t for t in self.tensors.values() if is_float(t.dtype) and fits(t)]
        if not found and self.rng.random() < 0.5:
            raise NoDraw
        if not found:
            return self.fresh(self.floats, self.dims(self.rng.choice((1, 2, 2, 3, 4))), fits)
        return self.pick(lambda t: is_float(t.dtype) and fits(t))

    def fresh(
        self,
        dtype: np.dtype,
        dims: tuple[Dim, ...],
        fits: Callable[[Tensor], bool] = lambda t: True,
    ) -> Tensor:
        """A new input, or a constant if the dims are known."""
        self.need(self.elements(dims) <= MOST_ELEMENTS)
        self.need(all(isinstance(dim, int) or dim in _SYMBOLS for dim in dims))
        whole = not is_float(dtype) or self.rng.random() < 0.3
        name = self._name("x")
        tensor = Tensor(name, dtype, dims, True, min(4, exact_limit(dtype)) if whole else None)
        self.need(fits(tensor))
        self.tensors[name] = tensor
        if tensor.static and self.rng.random() < 0.6 and self.inputs:
            self.constants[name] = self.array(tensor, {})
        else:
            self.inputs.append(name)
        return tensor

    def constant(self, array: np.ndarray) -> Tensor:
        """A constant that an operator needs, such as a shape."""
        name = self._name("c")
        self.constants[name] = array
        self.tensors[name] = Tensor(name, array.dtype, array.shape, True)
        return self.tensors[name]

    def ints(self, values: Sequence[int]) -> Tensor:
        return self.constant(np.array(values, np.int64))

    def array(self, tensor: Tensor, sizes: dict[str, int]) -> np.ndarray:
        """Random elements of an input."""
        shape = tuple(d if isinstance(d, int) else sizes[d] for d in tensor.dims)
        rng = np.random.default_rng(self.rng.randrange(2**32))
        if tensor.dtype == BOOL:
            return rng.random(shape) < 0.5
        if tensor.bound is not None:
            least = 0 if tensor.dtype.kind == "u" else -tensor.bound
            return rng.integers(least, tensor.bound + 1, shape).astype(tensor.dtype)
        return rng.standard_normal(shape).astype(tensor.dtype)

    # --- nodes ---

    def emit(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        dims: Sequence[Dim],
        dtype: np.dtype | None = None,
        exact: bool = False,
        bound: int | None = None,
        **attributes: Any,
    ) -> Tensor:
        """A node of one result. A result of a ``bound`` that its type has is exact."""
        (result,) = self.emit_many(op, inputs, [dims], dtype, exact, bound, **attributes)
        return result

    def emit_many(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        results: Sequence[Sequence[Dim]],
        dtype: np.dtype | None = None,
        exact: bool = False,
        bound: int | None = None,
        **attributes: Any,
    ) -> list[Tensor]:
        kind = dtype or next(t for t in inputs if t).dtype
        if bound is not None and bound > exact_limit(kind):
            bound = None
        exact = exact or bound is not None or not is_float(kind)
        made = []
        for dims in results:
            self.need(self.elements(dims) <= MOST_ELEMENTS)
            made.append(Tensor(self._name("v"), kind, tuple(dims), exact, bound))
        for tensor in made:
            self.tensors[tensor.name] = tensor
        names = tuple(t.name if t else "" for t in inputs)
        self.nodes.append(Node(op, names, tuple(t.name for t in made), attributes))
        return made

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # --- the whole ---

    def try_one(self) -> None:
        """One operator more, or none if nothing fits it."""
        state = dict(self.tensors), list(self.nodes), list(self.inputs), dict(self.constants)
        (chosen,) = self.rng.choices([f for _, f in DRAWERS], [w for w, _ in DRAWERS])
        try:
            chosen(self)
        except NoDraw:
            self.tensors, self.nodes, self.inputs, self.constants = state

    def finish(self) -> Spec:
        used = {name for node in self.nodes for name in node.inputs}
        made = [name for node in self.nodes for name in node.outputs]
        outputs = tuple(n for n in made if n not in used or self.chance(0.15))
        feeds = tuple(
            {n: self.array(self.tensors[n], sizes) for n in self.inputs} for sizes in self.sizes
        )
        spec = Spec(
            self.seed,
            self.tensors,
            tuple(self.nodes),
            tuple(self.inputs),
            self.constants,
            outputs,
            feeds,
        )
        return spec.with_outputs(outputs)


def draw(seed: int) -> Spec:
    """The graph of a seed."""
    # Operators register where their modules are loaded.
    from tests.random_graphs import contractions, elementwise, movement, reductions  # noqa: F401

    drawing = Drawing(seed)
    rank = drawing.rng.choice((1, 2, 2, 3, 3, 4, 4))
    drawing.fresh(drawing.floats, drawing.dims(rank))
    if drawing.chance(0.3):
        drawing.fresh(
            drawing.rng.choice((*INTS, BOOL)), drawing.dims(drawing.rng.choice((1, 2, 3)))
        )
    wanted = drawing.rng.choice((1, 2, 3, 4, 5, 6, 8, 10))
    for _ in range(20 * wanted):
        if len(drawing.nodes) >= wanted:
            break
        drawing.try_one()
    return drawing.finish()


__all__ = ["BF16", "Drawing", "NoDraw", "draw", "draws", "exact_limit"]
