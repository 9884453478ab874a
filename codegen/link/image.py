# SPDX-License-Identifier: Apache-2.0
"""Linking objects into one position-independent image.

Code comes first, then constants; sections keep their order and their alignment, the first byte of
the image lies at a page. All references are relative, so the image runs wherever it is put, needs
no other library, and is never written to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.codegen.link import aarch64, x86_64
from tilewright.codegen.link.elf import MACHINE_AARCH64, ObjectFile, Symbol, read_object
from tilewright.ir.errors import CodegenError

_CODE_ALIGNMENT = 16
_CONSTANT_ALIGNMENT = 64
_MAX_IMAGE_BYTES = 1 << 30


@dataclass(frozen=True)
class Image:
    """Linked code. ``symbols`` maps the global symbols that are defined to their offsets."""

    code: bytes
    symbols: dict[str, int]


@dataclass
class _Layout:
    """The image while it is made: bytes, and where each section of each object begins."""

    code: bytearray = field(default_factory=bytearray)
    starts: list[dict[int, int]] = field(default_factory=list)

    def place(self, objects: Sequence[ObjectFile], executable: bool, fill: bytes) -> None:
        """Appends all sections of code, or all of constants."""
        least = _CODE_ALIGNMENT if executable else _CONSTANT_ALIGNMENT
        for parsed, starts in zip(objects, self.starts, strict=True):
            for index, section in parsed.sections.items():
                if section.executable is not executable:
                    continue
                alignment = max(section.alignment, least)
                self.code += fill * (-len(self.code) % alignment)
                starts[index] = len(self.code)
                self.code += section.data
                if len(self.code) > _MAX_IMAGE_BYTES:
                    raise CodegenError(f"The code has more than {_MAX_IMAGE_BYTES} bytes.")


def _define(objects: Sequence[ObjectFile], layout: _Layout) -> dict[str, int]:
    """The global symbols; a weak definition gives way to others."""
    found: dict[str, tuple[str, int]] = {}
    duplicates = set()
    for parsed, starts in zip(objects, layout.starts, strict=True):
        for symbol in parsed.symbols:
            if symbol.binding == "local" or symbol.section not in starts:
                continue
            offset = starts[symbol.section] + symbol.value
            binding, _ = found.get(symbol.name, ("weak", 0))
            if binding == "global" and symbol.binding == "global":
                duplicates.add(symbol.name)
            elif symbol.name not in found or (binding == "weak" and symbol.binding == "global"):
                found[symbol.name] = (symbol.binding, offset)
    if duplicates:
        names = ", ".join(f"'{name}'" for name in sorted(duplicates))
        raise CodegenError(f"More than one object defines {names}.")
    return {name: offset for name, (_, offset) in found.items()}


def _resolve(symbol: Symbol, starts: dict[int, int], defined: dict[str, int]) -> int | None:
    """The offset of a symbol in the image, or None if it is undefined."""
    if symbol.binding != "local" and symbol.name in defined:
        return defined[symbol.name]
    if symbol.section is None or symbol.section not in starts:
        return None
    return starts[symbol.section] + symbol.value


def _relocate(
    parsed: ObjectFile, starts: dict[int, int], defined: dict[str, int], layout: _Layout
) -> set[str]:
    """Applies the relocations of one object; returns the undefined symbols among them."""
    apply = aarch64.apply if parsed.machine == MACHINE_AARCH64 else x86_64.apply
    targets = [_resolve(symbol, starts, defined) for symbol in parsed.symbols]
    missing = set()
    for index, section in parsed.sections.items():
        span = starts[index], starts[index] + len(section.data)
        for relocation in section.relocations:
            symbol = parsed.symbols[relocation.symbol]
            target = targets[relocation.symbol]
            if target is None:
                if relocation.kind:
                    missing.add(symbol.name or f"section of symbol {relocation.symbol}")
                continue
            place = span[0] + relocation.offset
            name = symbol.name or section.name
            apply(layout.code, span, place, relocation.kind, target + relocation.addend, name)
    return missing


def link_image(objects: Sequence[bytes], *entries: str) -> Image:
    """Links ELF64 relocatable objects of one machine (x86-64 or AArch64) into an image.

    ``entries`` must be among the global symbols. Raises CodegenError for damaged objects, symbols
    that are defined twice or not at all (all are named), writable data, and references that are
    absolute or out of range.
    """
    parsed = [read_object(data) for data in objects]
    if len({one.machine for one in parsed}) != 1:
        raise CodegenError("The objects to link are none, or of different machines.")
    fill = aarch64.FILL if parsed[0].machine == MACHINE_AARCH64 else x86_64.FILL
    layout = _Layout(starts=[{} for _ in parsed])
    layout.place(parsed, executable=True, fill=fill)
    layout.place(parsed, executable=False, fill=b"\0")
    defined = _define(parsed, layout)
    missing = set(entries) - defined.keys()
    for one, starts in zip(parsed, layout.starts, strict=True):
        missing |= _relocate(one, starts, defined, layout)
    if missing:
        names = ", ".join(f"'{name}'" for name in sorted(missing))
        raise CodegenError(f"The code refers to symbols that nothing defines: {names}.")
    return Image(bytes(layout.code), defined)
