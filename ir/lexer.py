# SPDX-License-Identifier: Apache-2.0
"""Tokens of both IRs, and the cursor that the recursive-descent parsers share.

One regular expression splits the text; a line that starts with ``//`` is a comment, anywhere else
``//`` is the floor-division. An error shows the line at fault with a caret below it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from tilewright.ir.errors import ParseError

T = TypeVar("T")

_TOKEN = re.compile(
    r"""
    (?P<skip>^[ \t]*//[^\n]*|\n|[ \t\r]+)
  | (?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
  | (?P<int>\d+)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<value>%[A-Za-z0-9_]+)
  | (?P<at>@[A-Za-z0-9_.$-]+)
  | (?P<hash>\#[0-9a-f]+)
  | (?P<symbol>->|//|==|!=|<=|>=|[-+*/%<>=()\[\]{},:;])
    """,
    re.VERBOSE | re.MULTILINE,
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is ``float int name string value at hash symbol`` or ``end``; ``position`` an offset
    in the text.
    """

    kind: str
    text: str
    position: int


def is_name(text: str) -> bool:
    """True if ``text`` can name a symbol, variable or buffer in the text form."""
    return NAME.fullmatch(text) is not None


def error_at(source: str, position: int, message: str) -> ParseError:
    """A ParseError that shows where in ``source`` it happened."""
    start = source.rfind("\n", 0, position) + 1
    end = source.find("\n", position)
    line = source[start:] if end < 0 else source[start:end]
    number = source.count("\n", 0, position) + 1
    column = position - start + 1
    caret = re.sub(r"[^\t]", " ", line[: column - 1]) + "^"
    return ParseError(f"Line {number}, column {column}: {message}\n  {line}\n  {caret}")


def tokenize(source: str) -> list[Token]:
    """All tokens of a text and a closing ``end``; ParseError on a character that starts none."""
    tokens: list[Token] = []
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise error_at(source, position, f"Unexpected character '{source[position]}'.")
        kind = match.lastgroup or ""
        if kind != "skip":
            tokens.append(Token(kind, match[0], position))
        position = match.end()
    tokens.append(Token("end", "", len(source)))
    return tokens


class Cursor:
    """A position in the tokens of one text, with the primitives of a recursive-descent parser."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def ahead(self, count: int = 1) -> Token:
        """The token ``count`` places after the current one."""
        return self.tokens[min(self.at + count, len(self.tokens) - 1)]

    def next(self) -> Token:
        """The current token; moves on."""
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise ParseError at a token, the current one if none is given."""
        raise error_at(self.source, (token or self.token).position, message)

    def unexpected(self, wanted: str) -> NoReturn:
        """Raise ParseError because the current token is not ``wanted``."""
        found = f"'{self.token.text}'" if self.token.text else "the end of the text"
        self.fail(f"Expected {wanted}, found {found}.")

    def accept(self, text: str) -> bool:
        """Move over a symbol or word if it is next."""
        token = self.tokens[self.at]
        if token.text == text and token.kind in ("symbol", "name"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Move over a symbol or word, or fail."""
        token = self.token
        if not self.accept(text):
            self.unexpected(f"'{text}'")
        return token

    def take(self, kind: str, wanted: str) -> str:
        """The text of the current token, which must be of a kind; errors call it ``wanted``."""
        if self.token.kind != kind:
            self.unexpected(wanted)
        return self.next().text

    def name(self, wanted: str = "a name") -> str:
        return self.take("name", wanted)

    def integer(self) -> int:
        """An integer with an optional sign."""
        sign = -1 if self.accept("-") else 1
        return sign * int(self.take("int", "an integer"))

    def string(self) -> str:
        token = self.token
        raw = self.take("string", "a quoted string")
        try:
            return str(json.loads(raw))
        except json.JSONDecodeError:
            self.fail(f"The string {raw} has an escape that JSON does not know.", token)

    def separated(self, item: Callable[[], T], closing: str) -> list[T]:
        """Items with commas between them, maybe one after the last, up to and over ``closing``."""
        items: list[T] = []
        while not self.accept(closing):
            items.append(item())
            if not self.accept(","):
                self.expect(closing)
                break
        return items

    def end(self) -> None:
        """Fail unless the text is used up."""
        if self.token.kind != "end":
            self.unexpected("the end of the text")
