# SPDX-License-Identifier: Apache-2.0
"""Value expressions to LLVM values.

An expression is evaluated bottom-up with an explicit stack, each distinct node once a statement.
Parts that are the same in all lanes stay scalars and are splatted where they meet a vector. A guard
is evaluated lazily: behind a branch where its condition is one truth value, under a mask where
lanes differ.
"""

from tilewright.codegen.llvm.addresses import Addresses
from tilewright.codegen.llvm.arithmetic import binary, cast, compare, rounded, ssa_element, unary
from tilewright.codegen.llvm.builder import Block, Builder, Value, constant, vector_constant
from tilewright.codegen.llvm.environment import Environment
from tilewright.codegen.llvm.indices import IndexEmitter, integer_constant, split_lane
from tilewright.codegen.llvm.memory import Memory
from tilewright.codegen.math.library import math_call
from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Poly,
    Read,
    Scalar,
    Select,
    Symbol,
    Unary,
    Var,
    reads,
    sub,
)

_INDEX_TERMS = (Poly, IndexOp, Var, Symbol)
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


class ExpressionEmitter:
    """Emits value and index expressions in the current environment."""

    def __init__(
        self,
        builder: Builder,
        environment: Environment,
        indices: type[IndexEmitter] = IndexEmitter,
    ) -> None:
        self.builder = builder
        self.environment = environment
        self.indices = indices(builder, environment, self.value)
        self.addresses = Addresses(builder, environment, self.indices)
        self.memory = Memory(self.addresses)

    def value(self, e: Expr) -> Value:
        """The value of ``e``."""
        env = self.environment
        stack = [e]
        result: Value | None = None
        while stack:
            node = stack[-1]
            result = env.recall_in_statement(node)
            if result is not None:
                stack.pop()
                continue
            waiting = [c for c in self._eager(node) if env.recall_in_statement(c) is None]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            result = env.statement[-1][node] = self._emit(node)
            stack.pop()
        assert result is not None
        return result

    def _eager(self, e: Expr) -> tuple[Expr, ...]:
        """The operands that are evaluated before ``e`` in any case."""
        match e:
            case Unary(_, x, _) | Cast(x, _):
                return (x,)
            case Binary(_, x, y, _):
                return (x, y)
            case Compare(_, x, y) if x.dtype is not INDEX:
                return (x, y)
            case Select(c, x, y):
                return (c, x, y)
            case Guard(c, _, _):
                return (c,)
            case Call(_, args, _):
                return args
        return ()

    def _emit(self, e: Expr) -> Value:
        b = self.builder
        if e.dtype is INDEX and isinstance(e, (*_INDEX_TERMS, Const, Scalar)):
            return self.indices.index(e)
        match e:
            case Const():
                # The type first: one without values here is refused.
                element = ssa_element(e.dtype)
                return constant(e.value, element)
            case Scalar(name):
                bound = self.environment.values.get(e)
                if bound is None:
                    raise CodegenError(
                        f"Scalar '{name}' is used outside of the 'let' that binds it."
                    )
                return bound
            case Read(buffer, indices):
                return self.memory.load(buffer, indices)
            case Unary(op, x, _):
                return unary(b, op, self.value(x), x.dtype)
            case Binary(op, x, y, dtype):
                return binary(b, op, self.value(x), self.value(y), dtype)
            case Compare(op, x, y) if x.dtype is INDEX:
                return self._index_compare(op, x, y)
            case Compare(op, x, y):
                return compare(b, op, self.value(x), self.value(y), x.dtype)
            case Select(c, x, y):
                return b.select(self.value(c), self.value(x), self.value(y))
            case Guard(c, x, other):
                return self._guard(c, x, other)
            case Cast(x, dtype):
                return cast(b, self.value(x), x.dtype, dtype)
            case Call(function, args, dtype):
                return self._call(function, args, e)
        raise CodegenError(f"Expression '{e}' has no code.")

    def _call(self, function: str, args: tuple[Expr, ...], e: Expr) -> Value:
        b = self.builder
        operands = b.matched(*(self.value(a) for a in args))
        if not e.dtype.is_float:
            raise CodegenError(
                f"Function '{function}' takes floating-point values, not '{e.dtype}'."
            )
        return rounded(b, math_call(b, function, operands), e.dtype)

    # --- conditions -------------------------------------------------------------------------------

    def _index_compare(self, op: str, x: Expr, y: Expr) -> Value:
        """A comparison of indices; of the lane variable with a bound, in 32-bit lanes."""
        env, b = self.environment, self.builder
        narrow = self._lane_compare(op, env.resolve(sub(x, y)))
        if narrow is not None:
            return narrow
        name = op if op in ("eq", "ne") else "s" + op
        return b.compare(name, self.indices.index(x), self.indices.index(y))

    def _lane_compare(self, op: str, difference: Expr) -> Value | None:
        """``lane + rest OP 0`` as ``lane OP -rest``, with ``-rest`` clamped to what matters."""
        env, b = self.environment, self.builder
        if env.lane is None or not env.varies(difference):
            return None
        split = split_lane(difference, env.lane)
        if split is None or env.varies(split[1]):
            return None
        stride = integer_constant(split[0])
        if stride not in (1, -1):
            return None
        # lane + rest OP 0 becomes lane OP -rest; -lane + rest OP 0 becomes lane SWAPPED rest.
        bound = self.indices.index(split[1] if stride == -1 else sub(0, split[1]))
        if stride == -1:
            op = _SWAPPED[op]
        bound = b.intrinsic("smax", bound, constant(-1, "i64"))
        bound = b.intrinsic("smin", bound, constant(env.lanes, "i64"))
        narrow = b.splat(b.convert("trunc", bound, "i32"), env.lanes)
        lanes = vector_constant(range(env.lanes), "i32")
        return b.compare(op if op in ("eq", "ne") else "s" + op, lanes, narrow)

    # --- guards -----------------------------------------------------------------------------------

    def _guard(self, condition: Expr, x: Expr, other: Expr) -> Value:
        b, env = self.builder, self.environment
        truth = self.value(condition)
        if not reads(x):
            return b.select(truth, self.value(x), self.value(other))
        if truth.lanes:
            return self._masked_guard(truth, x, other)
        fork, inside, outside, after = b.block, *(b.new_block(n) for n in ("in", "out", "guarded"))
        b.branch_if(truth, inside, outside)
        with env.branch(fork):
            b.enter(inside)
            held = self.value(x)
            held_end = b.block
        with env.branch(fork):
            b.enter(outside)
            default = self.value(other)
            default_end = b.block
        return self._join(after, [(held, held_end), (default, default_end)])

    def _join(self, after: Block, incoming: list[tuple[Value, Block]]) -> Value:
        """Continue in ``after`` with the value of the branch taken."""
        b = self.builder
        lanes = max(v.lanes for v, _ in incoming)
        same: list[tuple[Value, Block]] = []
        for v, end in incoming:
            with b.at(end):
                same.append((b.splat(v, lanes), end))
            if not end.end:
                end.end = f"br label %{after.label}"
        b.enter(after)
        return b.phi(same)

    def _masked_guard(self, truth: Value, x: Expr, other: Expr) -> Value:
        """Lanes where the condition holds see ``x``; nothing is read where none does."""
        b, env = self.builder, self.environment
        mask = truth if env.mask is None else b.op("and", env.mask, truth)
        default = self.value(other)
        if all(self.memory.is_vector_read(r.buffer, r.indices) for r in reads(x)):
            with env.branch(b.block), env.masked(mask):
                held = self.value(x)
            return b.select(truth, held, default)
        fork, inside, after = b.block, b.new_block("some"), b.new_block("guarded")
        b.branch_if(b.any_lane(mask), inside, after)
        with env.branch(fork), env.masked(mask):
            b.enter(inside)
            held = b.select(truth, self.value(x), default)
            held_end = b.block
        return self._join(after, [(held, held_end), (default, fork)])
