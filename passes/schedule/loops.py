# SPDX-License-Identifier: Apache-2.0
"""Finding and replacing loops by name: what all schedule steps share."""

from collections.abc import Callable

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import TRUE, Expr, Read, Var
from tilewright.ir.loop import Alloc, For, If, Kernel, Stmt, Store, map_stmt, substitute_stmt, walk
from tilewright.ir.rewrite import rewrite


def loop_names(s: Stmt) -> list[str]:
    """The names of all loops in program order."""
    return [n.var.name for n in walk(s) if isinstance(n, For)]


def find_loop(s: Stmt, name: str) -> For:
    """The loop of that name; ScheduleError lists the names there are."""
    for node in walk(s):
        if isinstance(node, For) and node.var.name == name:
            return node
    known = ", ".join(loop_names(s))
    raise ScheduleError(f"There is no loop '{name}'; the loops are {known}.")


def replace_loop(kernel: Kernel, name: str, change: Callable[[For], Stmt]) -> Kernel:
    """The kernel with one loop replaced by what ``change`` makes of it."""
    target = find_loop(kernel.body, name)

    def on_stmt(node: Stmt) -> Stmt | None:
        return change(target) if node is target else None

    return kernel.with_body(map_stmt(kernel.body, on_stmt))


def divide_loop(kernel: Kernel, name: str, change: Callable[[For], Stmt]) -> Kernel:
    """:func:`replace_loop` for steps that make other loops of one: those are as it was only if it
    is serial.
    """
    check_serial(find_loop(kernel.body, name))
    return replace_loop(kernel, name, change)


def check_serial(loop: For) -> None:
    """Refuse to divide a loop of which it is said already how it runs."""
    if loop.kind != "serial":
        raise ScheduleError(
            f"'{loop.var.name}' is {loop.kind} already. Divide a loop before saying how it runs."
        )


def fresh(kernel: Kernel, *names: str) -> None:
    """Refuse loop names that are taken."""
    taken = set(loop_names(kernel.body)) & set(names)
    if taken:
        raise ScheduleError(f"A loop called '{min(taken)}' exists already.")


def rename_inner(s: Stmt, suffix: str) -> Stmt:
    """Give every loop and every local buffer inside ``s`` a name with ``suffix``: for a second copy
    of a nest.
    """

    def on_stmt(node: Stmt) -> Stmt | None:
        if isinstance(node, For):
            renamed = Var(node.var.name + suffix, node.var.extent)
            return For(
                renamed,
                node.kind,
                rename_inner(substitute_stmt(node.body, {node.var: renamed}), suffix),
            )
        if isinstance(node, Alloc):
            b = node.buffer
            own = Buffer(b.name + suffix, b.dtype, b.shape, b.layout, b.scope)
            return Alloc(own, rename_inner(redirect(node.body, b, own), suffix))
        return None

    return map_stmt(s, on_stmt)


def decided(s: Stmt) -> Stmt:
    """``s`` without the conditions that always hold."""

    def on_stmt(node: Stmt) -> Stmt | None:
        return decided(node.then) if isinstance(node, If) and node.condition is TRUE else None

    return map_stmt(s, on_stmt)


def redirect(s: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """``s`` with all accesses of a buffer moved to the same cells of another."""

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.buffer is old:
            return Read(new, tuple(rewrite(i, leaf) for i in e.indices))
        return None

    def on_stmt(node: Stmt) -> Stmt | None:
        if isinstance(node, Store) and node.buffer is old:
            indices = tuple(rewrite(i, leaf) for i in node.indices)
            return Store(new, indices, rewrite(node.value, leaf))
        return None

    return map_stmt(s, on_stmt, lambda e: rewrite(e, leaf))
