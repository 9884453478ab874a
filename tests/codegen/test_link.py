# SPDX-License-Identifier: Apache-2.0
"""The object linker: C and LLVM objects into images that run; damaged objects are refused."""

import ctypes
import mmap
import platform
import random
import shutil
import struct
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tilewright.codegen.link import Image, aarch64, link_image, x86_64
from tilewright.ir.errors import CodegenError

X86_64 = platform.machine() == "x86_64"
needs_x86_64 = pytest.mark.skipif(not X86_64, reason="runs x86-64 code")

TEXT = """
@table = private unnamed_addr constant [4 x i32] [i32 10, i32 20, i32 30, i32 40], align 64
@wide = internal constant <4 x float> <float 1.0, float 2.0, float 3.0, float 4.0>
define i32 @pick(i32 %i) {
  %k = and i32 %i, 3
  %w = zext i32 %k to i64
  %p = getelementptr [4 x i32], ptr @table, i64 0, i64 %w
  %v = load i32, ptr %p
  %r = call i32 @twice(i32 %v)
  ret i32 %r
}
define void @add(ptr %x) {
  %a = load <4 x float>, ptr %x
  %b = load <4 x float>, ptr @wide
  %c = fadd <4 x float> %a, %b
  store <4 x float> %c, ptr %x
  ret void
}
define i32 @choose(i32 %i) {
  switch i32 %i, label %other [i32 0, label %l0 i32 1, label %l1 i32 2, label %l2 i32 3, label %l3
                               i32 4, label %l4]
l0:
  ret i32 5
l1:
  ret i32 77
l2:
  ret i32 -3
l3: %a = call i32 @twice(i32 9)
  ret i32 %a
l4: %b = call i32 @pick(i32 1)
  ret i32 %b
other: ret i32 0
}
declare i32 @twice(i32)
"""
TWICE = "define i32 @twice(i32 %x) {\n %r = add i32 %x, %x\n ret i32 %r\n}\n"


def compile_llvm(text: str, triple: str, reloc: str = "pic") -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(opt=2, reloc=reloc, codemodel="small")
    module = llvm.parse_assembly(text)
    module.triple = triple
    return bytes(machine.emit_object(module))


def native(text: str, reloc: str = "pic") -> bytes:
    return compile_llvm(text, "x86_64-unknown-linux-gnu", reloc)


def compile_c(text: str, folder: Path, *flags: str) -> bytes:
    if shutil.which("cc") is None or not X86_64:
        pytest.skip("there is no C compiler for x86-64")
    (folder / "x.c").write_text(text)
    command = ["cc", "-c", "-O2", "-fPIC", "-ffreestanding", "-fno-stack-protector", *flags]
    subprocess.run([*command, "x.c", "-o", "x.o"], cwd=folder, check=True)
    return (folder / "x.o").read_bytes()


class Loaded:
    """An image in executable memory."""

    def __init__(self, image: Image) -> None:
        size = -(-len(image.code) // 4096) * 4096
        flags = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        self.memory = mmap.mmap(-1, size, prot=flags)
        self.memory.write(image.code)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.image = image

    def call(self, name: str, *arguments: int) -> int:
        function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * len(arguments))
        return int(function(self.base + self.image.symbols[name])(*arguments))


@needs_x86_64
def test_two_llvm_objects() -> None:
    image = link_image([native(TEXT), native(TWICE)], "pick")
    assert set(image.symbols) == {"pick", "add", "choose", "twice"}
    loaded = Loaded(image)
    assert [loaded.call("pick", i) for i in range(4)] == [20, 40, 60, 80]
    assert [loaded.call("choose", i) for i in range(6)] == [5, 77, -3, 18, 40, 0]
    values = (ctypes.c_float * 4)(1, 1, 1, 1)
    loaded.call("add", ctypes.addressof(values))
    assert list(values) == [2, 3, 4, 5]


def test_constants_keep_their_alignment() -> None:
    for triple in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"):
        objects = [compile_llvm(text, triple) for text in (TEXT, TWICE)]
        code = link_image(objects, "pick").code
        assert code.index(struct.pack("<4i", 10, 20, 30, 40)) % 64 == 0
        assert code.index(struct.pack("<4f", 1, 2, 3, 4)) % 16 == 0


@needs_x86_64
def test_c_objects(tmp_path: Path) -> None:
    first = compile_c(
        "extern const int shared[3]; int helper(int); static int local(int x) { return x + 1; }\n"
        "int entry(int i) { return helper(shared[i]) + local(i); }\n"
        "int (*pointer(void))(int) { return helper; }\n"
        "int through(int i) { return pointer()(i); }",
        tmp_path,
    )
    second = compile_c(
        "const int shared[3] = {7, 8, 9}; static int local(int x) { return x * 100; }\n"
        "int helper(int x) { return local(x); }",
        tmp_path,
        "-fno-inline",
    )
    for objects in ([first, second], [second, first]):
        loaded = Loaded(link_image(objects, "entry"))
        assert [loaded.call("entry", i) for i in range(3)] == [701, 802, 903]
        assert loaded.call("through", 5) == 500


@needs_x86_64
def test_calls_through_the_offset_table_are_relaxed(tmp_path: Path) -> None:
    first = compile_c("int f(int); int g(int x) { return f(x) + 1; }", tmp_path, "-fno-plt")
    second = compile_c("int f(int x) { return 3 * x; }", tmp_path)
    assert Loaded(link_image([first, second], "g")).call("g", 4) == 13


@needs_x86_64
def test_weak_definitions_give_way(tmp_path: Path) -> None:
    weak = compile_c("__attribute__((weak)) int f(void) { return 1; }", tmp_path)
    strong = compile_c("int f(void) { return 2; }", tmp_path)
    caller = compile_c("int f(void); int g(void) { return f(); }", tmp_path)
    for objects in ([weak, strong, caller], [strong, caller, weak], [weak, strong, weak, caller]):
        assert Loaded(link_image(objects, "g")).call("g") == 2
    assert Loaded(link_image([weak, caller, weak], "g")).call("g") == 1


def refused(objects: Sequence[bytes], message: str, entry: str = "f") -> None:
    with pytest.raises(CodegenError, match=message):
        link_image(objects, entry)


def test_errors() -> None:
    twice, pick = native(TWICE), native(TEXT)
    other = compile_llvm(TWICE, "aarch64-unknown-linux-gnu")
    refused([], "none, or of different machines")
    refused([twice, other], "none, or of different machines")
    refused([pick], "symbols that nothing defines: 'f', 'twice'")
    refused([twice, twice], "More than one object defines 'twice'", "twice")
    math = "declare double @sin(double) declare double @cos(double)\n" + (
        "define double @f(double %x) { %a = call double @sin(double %x)\n"
        "%b = call double @cos(double %a)\n ret double %b }"
    )
    refused([native(math)], "symbols that nothing defines: 'cos', 'sin'")


def test_refused_sections_and_references() -> None:
    refused([native("@g = global i32 1\ndefine ptr @f() { ret ptr @g }")], "'.data' holds writable")
    refused([native("@g = global i32 0\ndefine ptr @f() { ret ptr @g }")], "'.bss' holds writable")
    refused(
        [native("@g = thread_local global i32 1\ndefine ptr @f() { ret ptr @g }")],
        "thread-local|unsupported type",
    )
    pointers = "@g = constant [2 x ptr] [ptr @f, ptr @f]\ndefine ptr @f() { ret ptr @g }"
    refused([native(pointers)], r"reference to 'f' is absolute \(R_X86_64_64\)")
    refused(
        [compile_llvm(pointers, "aarch64-unknown-linux-gnu")],
        r"reference to 'f' is absolute \(R_AARCH64_ABS64\)",
    )
    refused([native("@f = common global i32 0")], "common or absolute|writable")


def test_x86_64_relocations() -> None:
    image = bytearray(64)
    x86_64.apply(image, (0, 64), 8, 2, 40 - 4, "x")
    assert struct.unpack_from("<i", image, 8) == (28,)
    x86_64.apply(image, (0, 64), 16, 24, 0, "x")
    assert struct.unpack_from("<q", image, 16) == (-16,)
    for kind, message in ((1, "absolute"), (10, "absolute"), (99, "unknown"), (9, "offset table")):
        with pytest.raises(CodegenError, match=message):
            x86_64.apply(image, (0, 64), 8, kind, 0, "x")
    with pytest.raises(CodegenError, match="out of range"):
        x86_64.apply(image, (0, 64), 8, 2, 1 << 33, "x")
    with pytest.raises(CodegenError, match="outside of its section"):
        x86_64.apply(image, (0, 10), 8, 2, 0, "x")


# kind, place, target, instruction before, instruction after (as assemblers encode it)
AARCH64 = [
    (283, 0x1000, 0x1010, 0x94000000, 0x94000004),  # bl #16
    (282, 0x1010, 0x1000, 0x14000000, 0x17FFFFFC),  # b #-16
    (275, 0x1004, 0x5678, 0x90000000, 0x90000020),  # adrp x0, #4 pages
    (275, 0x5004, 0x1678, 0x90000001, 0x90FFFFE1),  # adrp x1, #-4 pages
    (277, 0x1000, 0x5678, 0x91000000, 0x9119E000),  # add x0, x0, #0x678
    (278, 0x1000, 0x5679, 0x39400000, 0x3959E400),  # ldrb w0, [x0, #0x679]
    (284, 0x1000, 0x567A, 0x79400000, 0x794CF400),  # ldrh w0, [x0, #0x67a]
    (285, 0x1000, 0x5678, 0xB9400000, 0xB9467800),  # ldr w0, [x0, #0x678]
    (286, 0x1000, 0x5678, 0xF9400000, 0xF9433C00),  # ldr x0, [x0, #0x678]
    (299, 0x1000, 0x5670, 0x3DC00000, 0x3DC19C00),  # ldr q0, [x0, #0x670]
    (280, 0x1000, 0x1008, 0x54000000, 0x54000040),  # b.eq #8
    (279, 0x1000, 0x1008, 0x36000000, 0x36000040),  # tbz w0, #0, #8
    (274, 0x1000, 0x1005, 0x10000000, 0x30000020),  # adr x0, #5
    (311, 0x1004, 0x5678, 0x90000000, 0x90000020),  # adrp of an offset table entry: relaxed
    (312, 0x1000, 0x5678, 0xF9400041, 0x9119E041),  # ldr x1, [x2, ...] -> add x1, x2, #0x678
    (261, 0x1000, 0x0FF0, 0, 0xFFFFFFF0),
]


@pytest.mark.parametrize(("kind", "place", "target", "before", "after"), AARCH64)
def test_aarch64_relocations(kind: int, place: int, target: int, before: int, after: int) -> None:
    image = bytearray(0x6000)
    struct.pack_into("<I", image, place, before)
    aarch64.apply(image, (0, len(image)), place, kind, target, "x")
    assert struct.unpack_from("<I", image, place)[0] == after


def test_aarch64_errors() -> None:
    image = bytearray(64)
    wrong = [(257, 0, "absolute"), (263, 0, "absolute"), (999, 0, "unknown"), (283, 2, "aligned")]
    wrong += [(299, 8, "aligned"), (283, 1 << 28, "out of range"), (275, 1 << 33, "out of range")]
    for kind, target, message in [*wrong, (312, 0, "unknown form"), (261, 1 << 40, "out of range")]:
        with pytest.raises(CodegenError, match=message):
            aarch64.apply(image, (0, 64), 0, kind, target, "x")


def test_aarch64_objects() -> None:
    objects = [compile_llvm(text, "aarch64-unknown-linux-gnu") for text in (TEXT, TWICE)]
    image = link_image(objects, "pick")
    place = image.symbols["choose"]
    words = [struct.unpack_from("<I", image.code, at)[0] for at in range(0, len(image.code), 4)]
    branches = {
        at * 4 + ((word & 0x3FFFFFF) ^ 0x2000000) * 4 - 0x8000000
        for at, word in enumerate(words)
        if word >> 26 in (0x05, 0x25) and at * 4 < place + 400
    }
    assert image.symbols["twice"] in branches  # pick's or choose's call


def test_damaged_objects() -> None:
    """Truncated and randomly changed objects link or are refused; nothing else may happen."""
    for triple in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"):
        good = [compile_llvm(text, triple) for text in (TEXT, TWICE)]
        for size in range(0, len(good[0]), 37):
            with pytest.raises(CodegenError):
                link_image([good[0][:size], good[1]], "pick")
        generator = random.Random(3)
        for _ in range(600):
            damaged = bytearray(good[0])
            for _ in range(generator.randrange(1, 5)):
                place = generator.randrange(len(damaged))
                damaged[place] = generator.choice([0, 1, 0x7F, 0xFF, generator.randrange(256)])
            with suppress(CodegenError):
                link_image([bytes(damaged), good[1]], "pick")


def test_a_wrong_section_table() -> None:
    """``e_shentsize``, ``e_shnum`` and ``e_shstrndx`` of the header, each by itself."""
    good = compile_llvm(TWICE, "x86_64-unknown-linux-gnu")
    (count,) = struct.unpack_from("<H", good, 60)
    for place, value in [(58, 63), (58, 128), (60, 0), (60, 0xFF00), (62, count), (62, 0xFFFF)]:
        damaged = bytearray(good)
        struct.pack_into("<H", damaged, place, value)
        refused([bytes(damaged)], "its section table is wrong", "twice")


def test_same_bytes_again() -> None:
    objects = [native(TEXT), native(TWICE)]
    assert link_image(objects, "pick") == link_image(objects, "pick")
