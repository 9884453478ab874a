# SPDX-License-Identifier: Apache-2.0
"""All small faults that can be put into a source: a comparison flipped, a constant off by one, a
statement dropped.

What changes no behaviour that anyone relies on is left out by rule: strings, messages of errors and
logs, annotations, assertions, ``__repr__`` and ``__str__``.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "+",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
_FUNCTIONS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "median": "max", "fmean": "max",
}  # fmt: skip
_TOLD = re.compile(r"^(_?log(ger|ging)?\.|warnings\.|print\(|say\(|typer\.)")
_UNSEEN = frozenset(("__repr__", "__str__"))
_C_TOKENS = re.compile(r"<=|>=|==|!=|&&|\|\||(?<= )[<>](?= )|(?<= )[+*-](?= )|\b\d+\b")
_C_FLIPS = {
    "<=": "<", ">=": ">", "<": "<=", ">": ">=", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "*": "+",
}  # fmt: skip
_C_SKIPPED = re.compile(r"^\s*(#|//|/\*|\*)|tw_fail|error|\"")


@dataclass(frozen=True)
class Mutant:
    """A change of one place; ``begin`` and ``end`` count bytes of the file."""

    path: Path
    line: int
    begin: int
    end: int
    after: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.begin] + self.after.encode() + source[self.end :]

    def difference(self, source: bytes) -> str:
        """The lines before and after, as a patch shows them."""
        first = source.rfind(b"\n", 0, self.begin) + 1
        last = source.find(b"\n", self.end)
        last = len(source) if last < 0 else last
        changed = source[first : self.begin] + self.after.encode() + source[self.end : last]
        minus = [f"- {line}" for line in source[first:last].decode().splitlines()]
        plus = [f"+ {line}" for line in changed.decode().splitlines()]
        return "\n".join([*minus, *plus])


def mutants(path: Path, source: bytes) -> list[Mutant]:
    """All mutants of a file of Python or C."""
    if path.suffix == ".c":
        return list(_of_c(path, source))
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, path: Path, source: bytes) -> None:
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.found: list[Mutant] = []

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self._source[begin:end].decode()

    def _add(self, begin: int, end: int, after: str) -> None:
        line = self._source.count(b"\n", 0, begin) + 1
        self.found.append(Mutant(self._path, line, begin, end, after))

    def _between(self, left: ast.expr, right: ast.expr, after: str) -> None:
        """Replace the operator between two operands, brackets left as they are."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self._source[begin:end].decode()
        match = re.search(r"(not\s+in|is\s+not|[^\s()\\#]+)", gap)
        if match and "#" not in gap:
            self._add(begin + match.start(), begin + match.end(), after)

    # --- what is left out ---

    def visit_Raise(self, node: ast.Raise) -> None:
        """A message; whether it is raised is what the condition before it decides."""

    visit_Assert = visit_JoinedStr = visit_Raise  # type: ignore[assignment]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in _UNSEEN:
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self.visit(default)
            for statement in node.body:
                self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        text = self._text(node.test)
        if text == "TYPE_CHECKING" or text.startswith("__name__"):
            return
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            begin, end = self._span(node.test)
            self._add(begin, end, f"not ({text})")
        self.generic_visit(node)

    # --- what is changed ---

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            self._between(left, right, _COMPARISONS[type(op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        after = "or" if isinstance(node.op, ast.And) else "and"
        self._between(node.values[0], node.values[1], after)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            begin, end = self._span(node)
            self._add(begin, end, f"bool({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        strings = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)
        texts = [
            isinstance(x, strings) or (isinstance(x, ast.Constant) and isinstance(x.value, str))
            for x in (node.left, node.right)
        ]
        if type(node.op) in _ARITHMETIC and not any(texts):
            self._between(node.left, node.right, _ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        begin, end = self._span(node)
        if isinstance(node.value, bool):
            self._add(begin, end, str(not node.value))
        elif isinstance(node.value, int):
            self._add(begin, end, str(node.value + 1))
        elif isinstance(node.value, float):
            self._add(begin, end, "0.0" if node.value else "1.0")

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip: an assertion
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        if _TOLD.match(self._text(node)):
            return
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name in _FUNCTIONS:
            end = self._span(node.func)[1]
            module = "statistics." if name in ("median", "fmean") else ""
            begin = end - len(module + name)
            self._add(begin, end, _FUNCTIONS[name])
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Compare | ast.BoolOp):
            begin, end = self._span(node.value)
            self._add(begin, end, f"(not ({self._text(node.value)}))")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not _TOLD.match(self._text(node)):
            begin, end = self._span(node)
            self._add(begin, end, "pass")
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        begin, end = self._span(node)
        self._add(begin, end, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        begin, end = self._span(node)
        self._add(begin, end, "pass")


def _of_c(path: Path, source: bytes) -> Iterator[Mutant]:
    start, comment = 0, False
    for number, raw in enumerate(source.split(b"\n"), 1):
        line = raw.decode()
        inside, comment = comment, comment or "/*" in line
        if "*/" in line:
            comment = False
        if not inside and line.isascii() and not _C_SKIPPED.search(line):
            code = line.partition("//")[0].partition("/*")[0]
            for match in _C_TOKENS.finditer(code):
                token = match[0]
                after = _C_FLIPS.get(token) or str(int(token) + 1)
                yield Mutant(path, number, start + match.start(), start + match.end(), after)
        start += len(raw) + 1
