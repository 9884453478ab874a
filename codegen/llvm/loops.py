# SPDX-License-Identifier: Apache-2.0
"""Counted loops, and the polls at their back edges that end a run which is cancelled.

How often a loop polls is decided in :mod:`tilewright.codegen.llvm.polls`. A loop of little work is
cut into pieces, with the poll between them, so that its iterations stay as they are. In one of more
work a test of the counter costs nothing, and pieces would: with their many addresses LLVM finds
worse ones where a loop begins anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Block, Builder, Value, constant
from tilewright.codegen.llvm.polls import Interval


@dataclass(frozen=True)
class LoopEmitter:
    """Emits loops; ``poll`` ends the current block with a jump to a block, unless the run is to
    end.
    """

    builder: Builder
    poll: Callable[[Block], None]

    def loop(
        self,
        begin: Value,
        end: Value,
        interval: Interval | None,
        runs: bool,
        emit_body: Callable[[Value, Block], None],
    ) -> None:
        """Emit a loop tested at its end, with a test before it unless it ``runs`` once at least.

        ``emit_body`` emits an iteration, given the counter, and the block before the loop.
        """
        b = self.builder
        before, head, after = b.block, b.new_block("loop"), b.new_block("done")
        if runs:
            b.branch(head)
        else:
            b.branch_if(b.compare("slt", begin, end), head, after)
        b.enter(head)
        if interval is not None and interval.pieces:
            self._pieces(begin, end, interval.iterations, before, after, emit_body)
        else:
            times = 0 if interval is None else interval.iterations
            self._iterations(begin, end, times, before, after, lambda i: emit_body(i, before))
        b.enter(after)

    def _iterations(
        self,
        begin: Value,
        end: Value,
        interval: int,
        entry: Block,
        after: Block,
        emit_body: Callable[[Value], None],
    ) -> None:
        """Make the current block, which is entered from ``entry``, the body of a loop."""
        b = self.builder
        body, counter = b.block, Value(b.name(), "i64")
        emit_body(counter)
        following = b.op("add nuw nsw", counter, constant(1, "i64"))
        more = b.compare("slt", following, end)
        if interval:
            latches = self._ask(following, more, interval, body, after)
        else:
            latches = [b.block]
            b.branch_if(more, body, after)
        body.lines.insert(0, _phi(counter, (begin, entry), *((following, x) for x in latches)))

    def _ask(
        self, following: Value, more: Value, interval: int, body: Block, after: Block
    ) -> list[Block]:
        """End an iteration of a loop that polls once in ``interval`` ones; returns the blocks that
        jump back.
        """
        b = self.builder
        ask = b.new_block("ask")
        latches = [ask]
        if interval > 1:
            again = b.new_block("again")
            b.branch_if(more, again, after)
            b.enter(again)
            number = b.op("and", following, constant(interval - 1, "i64"))
            b.branch_if(b.compare("eq", number, constant(0, "i64")), ask, body)
            latches.append(again)
        else:
            b.branch_if(more, ask, after)
        b.enter(ask)
        self.poll(body)
        return latches

    def _pieces(
        self,
        begin: Value,
        end: Value,
        interval: int,
        before: Block,
        after: Block,
        emit_body: Callable[[Value, Block], None],
    ) -> None:
        """Make the current block the head of a loop over pieces of ``interval`` iterations."""
        b = self.builder
        piece, body, past, ask = b.block, *(b.new_block(n) for n in ("loop", "past", "ask"))
        start = Value(b.name(), "i64")
        limit = b.op("add nuw nsw", start, constant(interval, "i64"))
        stop = b.select(b.compare("slt", limit, end), limit, end)
        b.branch(body)
        b.enter(body)
        self._iterations(start, stop, 0, piece, past, lambda i: emit_body(i, before))
        b.enter(past)
        b.branch_if(b.compare("slt", stop, end), ask, after)
        b.enter(ask)
        self.poll(piece)
        piece.lines.insert(0, _phi(start, (begin, before), (stop, ask)))


def _phi(result: Value, *incoming: tuple[Value, Block]) -> str:
    """The line of a phi whose name is taken before all its operands are known."""
    pairs = ", ".join(f"[ {v.text}, %{block.label} ]" for v, block in incoming)
    return f"  {result.text} = phi {result.type} {pairs}"
