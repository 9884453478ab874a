# SPDX-License-Identifier: Apache-2.0
"""The undefined symbols of an ELF object: what code generation would need from elsewhere."""

import struct

from tilewright.ir.errors import CodegenError

_SYMBOL_TABLE = 2
_SYMBOL_BYTES = 24


def undefined_symbols(obj: bytes) -> list[str]:
    """The names of undefined symbols of a 64-bit little-endian ELF object, in the order of its
    table.
    """
    if obj[:6] != b"\x7fELF\x02\x01":
        raise CodegenError("The compiled object is not 64-bit little-endian ELF.")
    section_start = struct.unpack_from("<Q", obj, 0x28)[0]
    entry_bytes, count = struct.unpack_from("<HH", obj, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", obj, section_start + i * entry_bytes)
        for i in range(count)
    ]
    names: list[str] = []
    for section in sections:
        if section[1] != _SYMBOL_TABLE:
            continue
        start, size, strings = section[4], section[5], sections[section[6]][4]
        for position in range(start + _SYMBOL_BYTES, start + size, _SYMBOL_BYTES):
            name, _, _, index = struct.unpack_from("<IBBH", obj, position)
            if index == 0:
                begin = strings + name
                names.append(obj[begin : obj.index(b"\0", begin)].decode())
    return names


def check_symbols(obj: bytes, name: str, allowed: frozenset[str] = frozenset()) -> None:
    """CodegenError if the object of function ``name`` needs a symbol that is not ``allowed``."""
    missing = [s for s in undefined_symbols(obj) if s not in allowed]
    if missing:
        raise CodegenError(
            f"The code of '{name}' needs the symbol '{missing[0]}', which no target provides. "
            "This is a fault of code generation; report it with the kernel's text."
        )
