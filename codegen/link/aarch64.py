# SPDX-License-Identifier: Apache-2.0
"""Relocations of AArch64 (ELF for the Arm 64-bit Architecture, section 5.7).

Addresses are formed from a 4 KiB page relative to the instruction and an offset in that page, which
holds as long as the image begins at a page. Loads from the global offset table are relaxed.
"""

from tilewright.ir.errors import CodegenError

FILL = b"\0"  # an undefined instruction: between functions

_DATA = {260: 8, 261: 4, 262: 2}  # PREL64, PREL32, PREL16
_ABSOLUTE = {257: "ABS64", 258: "ABS32", 259: "ABS16", 1027: "RELATIVE"}
_GOT_PAGE, _GOT_OFFSET = 311, 312  # ADR_GOT_PAGE, LD64_GOT_LO12_NC
_PAGE, _PAGE_NC, _ADD = 275, 276, 277  # ADR_PREL_PG_HI21 and without check, ADD_ABS_LO12_NC
_LOAD_SHIFT = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # LDST8 to LDST128_ABS_LO12_NC
_ADR = 274  # ADR_PREL_LO21
_MOVW_FIRST, _MOVW_LAST = 263, 272

# Branches and literal loads: bits of the word offset, and where its field begins.
_BRANCH = {282: (26, 0), 283: (26, 0), 280: (19, 5), 273: (19, 5), 279: (14, 5)}


def _out_of_range(name: str) -> CodegenError:
    return CodegenError(f"The reference to '{name}' is out of range.")


def _misaligned(name: str) -> CodegenError:
    return CodegenError(f"The reference to '{name}' is not aligned as its instruction needs.")


def _field(word: int, bits: int, low: int, value: int) -> int:
    mask = ((1 << bits) - 1) << low
    return word & ~mask | value << low & mask


def _signed(value: int, bits: int, name: str) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise _out_of_range(name)
    return value


def _adr(word: int, value: int) -> int:
    """Puts 21 bits into ADR or ADRP: the two low ones apart."""
    return _field(_field(word, 2, 29, value), 19, 5, value >> 2)


def _instruction(word: int, place: int, kind: int, target: int, name: str) -> int:
    """The instruction with its reference filled in."""
    if kind in _BRANCH:
        bits, low = _BRANCH[kind]
        if (target - place) % 4:
            raise _misaligned(name)
        return _field(word, bits, low, _signed((target - place) >> 2, bits, name))
    if kind in (_PAGE, _PAGE_NC):
        pages = (target >> 12) - (place >> 12)
        return _adr(word, _signed(pages, 21, name) if kind == _PAGE else pages)
    if kind == _ADR:
        return _adr(word, _signed(target - place, 21, name))
    if kind == _ADD:
        return _field(word, 12, 10, target & 0xFFF)
    if kind in _LOAD_SHIFT:
        shift = _LOAD_SHIFT[kind]
        if target & 0xFFF & ((1 << shift) - 1):
            raise _misaligned(name)
        return _field(word, 12, 10, (target & 0xFFF) >> shift)
    raise CodegenError(f"The reference to '{name}' is of the unknown AArch64 type {kind}.")


def apply(
    image: bytearray, span: tuple[int, int], place: int, kind: int, target: int, name: str
) -> None:
    """Patches ``image`` at offset ``place``, inside a section from ``span[0]`` to ``span[1]``.

    ``target`` is the offset of the symbol plus the addend. Raises CodegenError if the relocation is
    absolute, unknown, misaligned or out of range.
    """
    if kind in (0, 256):
        return
    if kind in _ABSOLUTE or _MOVW_FIRST <= kind <= _MOVW_LAST:
        raise CodegenError(
            f"The reference to '{name}' is absolute (R_AARCH64_{_ABSOLUTE.get(kind, 'MOVW')}): "
            "compile for a position-independent image."
        )
    size = _DATA.get(kind, 4)
    if place + size > span[1]:
        raise CodegenError("An object file is damaged: a relocation lies outside of its section.")
    if kind in _DATA:
        value = _signed(target - place, 8 * size, name)
        image[place : place + size] = value.to_bytes(size, "little", signed=True)
        return
    word = int.from_bytes(image[place : place + 4], "little")
    if kind == _GOT_PAGE:
        kind = _PAGE
    elif kind == _GOT_OFFSET:
        if word & 0xFFC00000 != 0xF9400000:
            raise CodegenError(f"The load of the address of '{name}' is of an unknown form.")
        word = 0x91000000 | word & 0x3FF  # ldr x, [page, offset] -> add x, page, offset
        kind = _ADD
    word = _instruction(word, place, kind, target, name)
    image[place : place + 4] = word.to_bytes(4, "little")
