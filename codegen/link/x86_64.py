# SPDX-License-Identifier: Apache-2.0
"""Relocations of x86-64 (System V ABI, AMD64 supplement, chapter 4).

References are relative to the instruction. A load of an address from the global offset table is
relaxed to compute the address (the table would need absolute addresses, which an image has not).
"""

from tilewright.ir.errors import CodegenError

_PC32, _PLT32, _PC64, _PC16, _PC8 = 2, 4, 24, 13, 15
_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX = 9, 41, 42

# Bytes of each relocation that is a plain difference of addresses.
_RELATIVE = {_PC32: 4, _PLT32: 4, _PC64: 8, _PC16: 2, _PC8: 1}

_ABSOLUTE = {1: "64", 10: "32", 11: "32S", 12: "16", 14: "8", 8: "RELATIVE"}

FILL = b"\xcc"  # int3: between functions


def _put(image: bytearray, end: int, place: int, size: int, value: int, name: str) -> None:
    if place + size > end:
        raise CodegenError("An object file is damaged: a relocation lies outside of its section.")
    try:
        image[place : place + size] = value.to_bytes(size, "little", signed=True)
    except OverflowError:
        raise CodegenError(f"The reference to '{name}' is out of range.") from None


def _relax(image: bytearray, place: int, start: int, kind: int, name: str) -> None:
    """Rewrites the instruction at a load from the offset table to one that needs none."""
    before = bytes(image[max(place - 2, start) : place])
    if len(before) == 2 and before[0] == 0x8B and before[1] & 0xC7 == 0x05:
        image[place - 2] = 0x8D  # mov reg, [rip + x] -> lea reg, [rip + x]
    elif kind == _GOTPCRELX and before == b"\xff\x15":
        image[place - 2 : place] = b"\x67\xe8"  # call [rip + x] -> addr32 call x
    else:
        raise CodegenError(
            f"The reference to '{name}' needs a global offset table, which an image has not."
        )


def apply(
    image: bytearray, span: tuple[int, int], place: int, kind: int, target: int, name: str
) -> None:
    """Patches ``image`` at offset ``place``, inside a section from ``span[0]`` to ``span[1]``.

    ``target`` is the offset of the symbol plus the addend. Raises CodegenError if the relocation is
    absolute, unknown or out of range.
    """
    if kind == 0:
        return
    if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
        _relax(image, place, span[0], kind, name)
        kind = _PC32
    size = _RELATIVE.get(kind)
    if size is not None:
        _put(image, span[1], place, size, target - place, name)
    elif kind in _ABSOLUTE:
        raise CodegenError(
            f"The reference to '{name}' is absolute (R_X86_64_{_ABSOLUTE[kind]}): compile for a "
            "position-independent image."
        )
    else:
        raise CodegenError(f"The reference to '{name}' is of the unknown x86-64 type {kind}.")
