# SPDX-License-Identifier: Apache-2.0
"""Code for every level of x86-64: what this machine executes gives the results of the reference,
and all of it, disassembled, holds no instruction of a higher level.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.codegen.test_op_samples import OPS, OPTIONS, build_sample, check_results
from tests.ir.ops.test_ops import cases
from tests.targets import LEVELS, runs_here
from tilewright import driver
from tilewright.codegen.link import Image, link_image
from tilewright.ir.graph_parser import registered_ops
from tilewright.ir.target import parse_target

_LINE = re.compile(r"^ *[0-9a-f]+:\t(?P<bytes>[0-9a-f ]+?) *\t(?P<text>.+)$", re.MULTILINE)
_PREFIXES = frozenset(("26", "2e", "36", "3e", "64", "65", "67"))  # segments, size of addresses
_AVX, _AVX512 = frozenset(("c4", "c5")), frozenset(("62",))
# What needs a feature beyond a level, and looks as the rest does.
_BEYOND = {
    "x86-64-v2": re.compile(r"lzcnt|movbe"),
    "x86-64-v3": re.compile(r"\{vex\}|vpdp|vbcstne|vcvtne"),
    "x86-64-v4": re.compile(r"\{vex\}|vpdp|vcvtne|v\w+[ps]h$|vperm[ti]?2?b$|vpopcnt|vpsh[lr]d"),
}
_FORBIDDEN = {"x86-64-v2": _AVX | _AVX512, "x86-64-v3": _AVX512, "x86-64-v4": frozenset[str]()}
TARGETS = {level: parse_target(f"{level},cores=2") for level in LEVELS}


def instructions(code: bytes, folder: Path) -> Iterator[tuple[str, str]]:
    """The first byte behind prefixes, and the text, of each instruction of an object."""
    path = folder / "code.o"
    path.write_bytes(code)
    command = ["objdump", "-d", "-w", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for match in _LINE.finditer(text):
        given = match["bytes"].split()
        yield next(b for b in given if b not in _PREFIXES or len(given) == 1), match["text"]


def beyond(level: str, code: bytes, folder: Path) -> list[str]:
    """The instructions of an object that processors of the level do not have."""
    found = list(instructions(code, folder))
    assert found, "The object has no code, or its disassembly is not understood."
    return [
        text
        for first, text in found
        if first in _FORBIDDEN[level] or _BEYOND[level].match(text.split()[0])
    ]


def product_of(size: int) -> onnx.ModelProto:
    """``y = x @ w`` of square matrices."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size, size]) for n in "xwy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "product", ports[:2], ports[2:]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The objects that are linked from now on: kernels and host programs."""
    if shutil.which("objdump") is None:
        pytest.skip("there is no objdump")
    kept: list[bytes] = []

    def link(objects: Sequence[bytes], entry: str) -> Image:
        kept.extend(objects)
        return link_image(objects, entry)

    monkeypatch.setattr(driver, "link_image", link)
    return kept


def pairs() -> Iterator[object]:
    """Each op and level; the short suite takes each op at one level, by turns."""
    for number, name in enumerate(OPS):
        for turn, level in enumerate(LEVELS):
            marks = () if number % len(LEVELS) == turn else (pytest.mark.slow,)
            yield pytest.param(name, level, marks=marks)


@pytest.mark.parametrize(("name", "level"), list(pairs()))
def test_op(name: str, level: str, linked: list[bytes], tmp_path: Path) -> None:
    case = cases(registered_ops()[name])[0]
    build = build_sample(case, TARGETS[level])
    assert linked
    for code in linked:
        assert beyond(level, code, tmp_path) == []
    if runs_here(TARGETS[level]):
        check_results(case, build)


@pytest.mark.parametrize(
    ("level", "register"), [("x86-64-v2", "%xmm"), ("x86-64-v3", "%ymm"), ("x86-64-v4", "%zmm")]
)
def test_each_level_uses_its_vectors(
    level: str, register: str, linked: list[bytes], tmp_path: Path
) -> None:
    """And what a level has is found to be missing in the one below."""
    driver.build(product_of(64), TARGETS[level], None, OPTIONS)
    kernel = linked[1]
    texts = [text for _, text in instructions(kernel, tmp_path)]
    assert any(register in text for text in texts)
    assert any(text.startswith("vfmadd") for text in texts) == (level != "x86-64-v2")
    below = LEVELS[: LEVELS.index(level)]
    assert all(beyond(lower, kernel, tmp_path) for lower in below)
