# SPDX-License-Identifier: Apache-2.0
"""Reading ELF64 relocatable objects, with every offset and index checked.

Objects may come from a cache on disk, so nothing in them is trusted: whatever does not fit raises
CodegenError. Only what the linker needs is kept: the sections that a program loads, the symbols and
the relocations. Debug and unwind information is dropped.
"""

import struct
from dataclasses import dataclass, field

from tilewright.ir.errors import CodegenError

MACHINE_X86_64, MACHINE_AARCH64 = 62, 183

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 1, 2, 4, 8, 9
_SHT_X86_64_UNWIND = 0x70000001
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR, _SHF_TLS = 1, 2, 4, 0x400
_SHN_UNDEF, _SHN_RESERVED = 0, 0xFF00

_MAX_ALIGNMENT = 4096
_DROPPED = (".eh_frame", ".note", ".comment", ".llvm", ".gcc_except_table", ".ARM.attributes")


@dataclass(frozen=True)
class Relocation:
    """A place in a section to patch: ``addend`` and the index of the symbol it refers to."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass
class Section:
    """A section that is part of the image."""

    name: str
    data: bytes
    alignment: int
    executable: bool
    relocations: list[Relocation] = field(default_factory=list)


@dataclass(frozen=True)
class Symbol:
    """A symbol: ``section`` is an index into the object's section table, None if undefined.

    ``binding`` is "local", "global" or "weak".
    """

    name: str
    binding: str
    section: int | None
    value: int


@dataclass(frozen=True)
class ObjectFile:
    """A checked object. ``sections`` maps section indices to those that are loaded."""

    machine: int
    sections: dict[int, Section]
    symbols: list[Symbol]


@dataclass(frozen=True)
class _Row:
    """One row of the section table."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def _refuse(reason: str) -> CodegenError:
    return CodegenError(f"An object file is damaged or of an unsupported kind: {reason}.")


def _slice(data: bytes, offset: int, size: int, what: str) -> bytes:
    if offset > len(data) or size > len(data) - offset:
        raise _refuse(f"{what} lies outside of the file")
    return data[offset : offset + size]


def _text(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if offset >= len(table) or end < 0:
        raise _refuse("a name lies outside of its table")
    return table[offset:end].decode("utf-8", "replace")


def _read_rows(data: bytes, header: tuple[int, ...]) -> list[_Row]:
    offset, entry_size, count, names_index = header[6], header[11], header[12], header[13]
    if entry_size != _SECTION.size or not 0 < count < _SHN_RESERVED or names_index >= count:
        raise _refuse("its section table is wrong")
    table = _slice(data, offset, count * entry_size, "the section table")
    raw = list(_SECTION.iter_unpack(table))
    names = _slice(data, raw[names_index][4], raw[names_index][5], "the section names")
    return [_Row(_text(names, r[0]), r[1], r[2], r[4], r[5], r[6], r[7], r[8], r[9]) for r in raw]


def _is_loaded(row: _Row) -> bool:
    """Whether a section is part of the image; refuses what an image cannot hold."""
    if not row.flags & _SHF_ALLOC or row.kind == _SHT_X86_64_UNWIND:
        return False
    if row.size == 0 or row.name.startswith(_DROPPED):
        return False
    if row.flags & _SHF_TLS:
        raise CodegenError(f"Section '{row.name}' is thread-local, which an image cannot hold.")
    relocated_constants = row.name.startswith(".data.rel.ro")
    if row.kind == _SHT_NOBITS or (row.flags & _SHF_WRITE and not relocated_constants):
        raise CodegenError(f"Section '{row.name}' holds writable data, which an image cannot.")
    if row.kind != _SHT_PROGBITS:
        raise _refuse(f"section '{row.name}' is of type {row.kind}")
    return True


def _read_section(data: bytes, row: _Row) -> Section:
    alignment = max(row.alignment, 1)
    if alignment & (alignment - 1) or alignment > _MAX_ALIGNMENT:
        raise _refuse(f"section '{row.name}' has the alignment {alignment}")
    content = _slice(data, row.offset, row.size, f"section '{row.name}'")
    return Section(row.name, content, alignment, bool(row.flags & _SHF_EXECINSTR))


def _read_symbols(data: bytes, rows: list[_Row]) -> list[Symbol]:
    tables = [row for row in rows if row.kind == _SHT_SYMTAB]
    if len(tables) != 1 or tables[0].link >= len(rows):
        raise _refuse("it has no single symbol table")
    row = tables[0]
    content = _slice(data, row.offset, row.size, "the symbol table")
    if row.entry_size != _SYMBOL.size or len(content) % _SYMBOL.size:
        raise _refuse("its symbol table is wrong")
    strings = _slice(data, rows[row.link].offset, rows[row.link].size, "the string table")
    bindings = {0: "local", 1: "global", 2: "weak"}
    symbols = []
    for name, info, _other, section, value, _size in _SYMBOL.iter_unpack(content):
        text = _text(strings, name) if name else ""
        binding, kind = bindings.get(info >> 4), info & 15
        if binding is None or kind in (6, 10):  # thread-local, indirect function
            raise _refuse(f"symbol '{text}' has the unsupported type {info}")
        if section >= _SHN_RESERVED and kind != 4 and binding != "local":  # 4: file name
            raise CodegenError(
                f"Symbol '{text}' is common or absolute, which an image cannot hold."
            )
        if section < _SHN_RESERVED and section >= len(rows):
            raise _refuse(f"symbol '{text}' lies in section {section} of {len(rows)}")
        defined = _SHN_UNDEF < section < _SHN_RESERVED
        if defined and value > rows[section].size:
            raise _refuse(f"symbol '{text}' lies outside of its section")
        symbols.append(Symbol(text, binding, section if defined else None, value))
    return symbols


def _read_relocations(data: bytes, row: _Row, section: Section, symbols: int) -> None:
    content = _slice(data, row.offset, row.size, f"section '{row.name}'")
    if row.entry_size != _RELOCATION.size or len(content) % _RELOCATION.size:
        raise _refuse(f"section '{row.name}' is wrong")
    for offset, info, addend in _RELOCATION.iter_unpack(content):
        if offset >= len(section.data) or info >> 32 >= symbols:
            raise _refuse(f"a relocation in '{row.name}' is out of range")
        section.relocations.append(Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend))


def read_object(data: bytes) -> ObjectFile:
    """Parses one relocatable object; raises CodegenError for whatever is not as it should be."""
    if len(data) < _HEADER.size:
        raise _refuse("it is too short")
    header = _HEADER.unpack_from(data)
    if header[0][:7] != b"\x7fELF\x02\x01\x01" or header[1] != 1:
        raise _refuse("it is no relocatable 64-bit little-endian ELF file")
    if header[2] not in (MACHINE_X86_64, MACHINE_AARCH64):
        raise _refuse(f"it is for the machine number {header[2]}")
    rows = _read_rows(data, header)
    sections = {i: _read_section(data, row) for i, row in enumerate(rows) if _is_loaded(row)}
    symbols = _read_symbols(data, rows)
    for row in rows:
        if row.kind not in (_SHT_RELA, _SHT_REL) or row.info not in sections:
            continue
        if row.kind == _SHT_REL:
            raise _refuse(f"section '{row.name}' has relocations without addends")
        _read_relocations(data, row, sections[row.info], len(symbols))
    return ObjectFile(header[2], sections, symbols)
