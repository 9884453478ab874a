# SPDX-License-Identifier: Apache-2.0
"""Einstein summation: one contraction for two operands, a chain of them for more.

A label names an axis of the operands and of the result; labels that the result lacks are summed
over. Dims under one label are equal or 1. An ellipsis stands for the labels ``0``, ``1``, ...
counted from the right.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F16, F32, I32, DType
from tilewright.ir.expr import Expr, Symbol, Var
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import (
    NUMERIC,
    accumulator_dtype,
    broadcast_index,
    read_held,
    reduce_into,
    scratch,
    zero,
)
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import broadcast_requirements, broadcast_shapes, expect_dtype
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

Labels = tuple[str, ...]

_N = Symbol("N", 1, 64, 1, 3)
_M = Symbol("M", 1, 64, 1, 4)
_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


@dataclass(frozen=True)
class Einsum(Op):
    """``equation`` as numpy has it: ``bij,bjk->bik``; without an arrow, all labels that occur once,
    in order. The result is of the operands' dtype, or of ``dtype``, that of the accumulator.
    """

    name = "einsum"
    equation: str
    dtype: DType | None = None

    def attributes(self) -> dict[str, Any]:
        """The equation, and the result's type where it is not that of the operands."""
        found = super().attributes()
        return {name: value for name, value in found.items() if value is not None}

    def labels(self, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
        """The labels of every operand and those of the result."""
        text = self.equation.replace(" ", "")
        inputs, arrow, output = text.partition("->")
        terms = inputs.split(",")
        self.require(
            len(terms) == len(ranks),
            f"'{self.equation}' has {len(terms)} terms for {len(ranks)} operands.",
        )
        for term in (*terms, output):
            self.require(
                _TERM.fullmatch(term) is not None,
                f"'{term}' in '{self.equation}' is not a term of letters and at most one ellipsis.",
            )
        sources = [self._operand_labels(t, r) for t, r in zip(terms, ranks, strict=True)]
        hidden = max((sum(map(str.isdigit, s)) for s in sources), default=0)
        dots = tuple(str(d) for d in reversed(range(hidden)))
        if not arrow:
            letters = [label for s in sources for label in s if label.isalpha()]
            return sources, (*dots, *sorted(c for c in set(letters) if letters.count(c) == 1))
        head, ellipsis, tail = output.partition("...")
        result = (*head, *(dots if ellipsis else ()), *tail)
        known = {label for s in sources for label in s}
        for label in result:
            self.require(
                label in known,
                f"Label '{label}' of the result of '{self.equation}' is in no operand.",
            )
            self.require(
                result.count(label) == 1,
                f"Label '{label}' repeats in the result of '{self.equation}'.",
            )
        return sources, result

    def _operand_labels(self, term: str, rank: int) -> Labels:
        head, ellipsis, tail = term.partition("...")
        hidden = rank - len(head) - len(tail)
        self.require(
            hidden >= 0 if ellipsis else hidden == 0,
            f"'{term}' in '{self.equation}' does not fit an operand of rank {rank}.",
        )
        return (*head, *(str(d) for d in reversed(range(hidden))), *tail)

    def extents(
        self, sources: Sequence[Labels], shapes: Sequence[tuple[Expr, ...]]
    ) -> dict[str, Expr]:
        """The extent under each label, all operands broadcast together."""
        return {
            label: broadcast_shapes(self, [(d,) for d in dims])[0]
            for label, dims in _columns(sources, shapes).items()
        }

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.require(len(operands) >= 1, "Expected at least one operand, got none.")
        expect_dtype(self, [t.dtype for t in operands], NUMERIC)
        sources, output = self.labels([t.rank for t in operands])
        extents = self.extents(sources, [t.shape for t in operands])
        dtype = self.dtype or operands[0].dtype
        self.require(
            dtype in (operands[0].dtype, accumulator_dtype(operands[0].dtype)),
            f"A sum of products of {operands[0].dtype} is not accumulated in {dtype}.",
        )
        return (tensor(dtype, [extents[label] for label in output]),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        sources, _ = self.labels([t.rank for t in operands])
        columns = _columns(sources, [t.shape for t in operands])
        return tuple(
            r for dims in columns.values() for r in broadcast_requirements([(d,) for d in dims])
        )

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            result = np.einsum(self.equation, *(widened(x) for x in operands))
            dtype = operands[0].dtype if self.dtype is None else self.dtype.numpy
            return (np.asarray(result).astype(dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (result,) = results
        sources, output = self.labels([x.rank for x in operands])
        extents = self.extents(sources, [x.shape for x in operands])
        dtype = accumulator_dtype(result.dtype)
        stages: list[Stage] = []
        current, labels = operands[0], sources[0]
        for step in range(1, max(2, len(operands))):
            parts = [
                (current, labels),
                *zip(operands[step : step + 1], sources[step : step + 1], strict=True),
            ]
            if step >= len(operands) - 1:
                stages += _contraction(parts, output, extents, result, dtype, step)
                break
            later = {label for s in sources[step + 1 :] for label in s} | set(output)
            here = dict.fromkeys(label for _, s in parts for label in s)
            labels = tuple(label for label in here if label in later)
            shape = [extents[label] for label in labels]
            target = scratch(f"product{step}", dtype, shape, result)
            stages += _contraction(parts, labels, extents, target, dtype, step)
            current = target
        return tuple(stages)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def sample(equation: str, *shapes: Sequence[Expr | int], dtype: DType = F32) -> Sample:
            return Sample(cls(equation), tuple(tensor(dtype, s) for s in shapes), "integers")

        yield sample("ij,jk->ik", (2, 3), (3, 4))
        yield sample("ij,jk", (2, 3), (3, 4), dtype=F16)
        yield sample("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4))
        halves = tensor(F16, (2, 3)), tensor(F16, (3, 4))
        yield Sample(cls("ij,jk->ki", F32), halves, "integers")
        yield sample("ij->ji", (2, 3))
        yield sample("ii->i", (3, 3))
        yield sample("ii", (3, 3), dtype=I32)
        yield sample("ij->", (2, 3), dtype=F16)
        yield sample("i,j->ij", (2,), (3,))
        yield sample("...ij,...jk->...ik", (4, 2, 3), (5, 1, 3, 2))
        yield sample("b...,b...", (2, 3), (2, 3))
        yield sample("ij,jk,kl->il", (2, 3), (3, 4), (4, 2), dtype=F16)
        yield sample("i,ij,j->", (2,), (2, 3), (3,))
        yield sample("ij,j->i", (2, 3), (1,))
        yield sample("nij,njk->nik", (_N, 2, _M), (_N, _M, 3))
        yield sample("...i,ij->...j", (_N, _M, 3), (3, 2))


def _columns(
    sources: Sequence[Labels], shapes: Sequence[tuple[Expr, ...]]
) -> dict[str, list[Expr]]:
    """All dims under each label."""
    columns: dict[str, list[Expr]] = {}
    for labels, shape in zip(sources, shapes, strict=True):
        for label, dim in zip(labels, shape, strict=True):
            columns.setdefault(label, []).append(dim)
    return columns


def _contraction(
    parts: Sequence[tuple[Buffer, Labels]],
    output: Labels,
    extents: dict[str, Expr],
    result: Buffer,
    dtype: DType,
    step: int,
) -> tuple[Stage, ...]:
    """The product of ``parts``, summed over the labels that ``output`` lacks, computed in
    ``dtype``.
    """
    used = dict.fromkeys((*output, *(label for _, s in parts for label in s)))
    variables = {
        label: Var(f"{'e' if label.isdigit() else ''}{label}_{step}", extents[label])
        for label in used
    }
    term: Expr | None = None
    for x, labels in parts:
        wanted = [variables[label] for label in labels]
        places = [broadcast_index(d, v.extent, v) for v, d in zip(wanted, x.shape, strict=True)]
        factor = cast(read_held(x, places, wanted), dtype)
        term = factor if term is None else term * factor
    assert term is not None
    domain = tuple(variables[label] for label in output)
    over = tuple(v for label, v in variables.items() if label not in output)
    if not over:
        return (map_stage(f"product_{step}", domain, result, cast(term, result.dtype)),)
    return reduce_into(f"contract_{step}", result, domain, over, zero(dtype), term)
