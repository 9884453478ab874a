# SPDX-License-Identifier: Apache-2.0
"""Writing artifacts: layout, determinism, atomic replacement."""

import struct
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen import artifact as writer
from tilewright.codegen.artifact import (
    KernelInfo,
    Manifest,
    PortInfo,
    SymbolInfo,
    TargetInfo,
    artifact_bytes,
)
from tilewright.ir.errors import CodegenError
from tilewright.runtime import artifact as reader
from tilewright.runtime import read_manifest

CODE = bytes(range(200))


def manifest(**fields: Any) -> Manifest:
    values: dict[str, Any] = {
        "target": TargetInfo("x86_64", ("avx2", "fma"), "x86_64-unknown-linux-gnu", 2),
        "inputs": (PortInfo("x", "float32", (1, "batch", "2*batch+1")),),
        "outputs": (PortInfo("y", "int8", ()),),
        "entry": 16,
        "symbols": (SymbolInfo("batch", 1, 64, 4), SymbolInfo("n")),
        "messages": ("Value {0} is wrong.",),
        "kernels": (KernelInfo("k_0123", "Conv_5"),),
        "notes": {"winograd": [1, 2.5, None]},
    }
    return Manifest(**(values | fields))


def test_layout(tmp_path: Path) -> None:
    constants = (b"abc", np.arange(100, dtype=np.float64), b"", memoryview(b"tail"))
    path = tmp_path / "model.tw"
    path.write_bytes(artifact_bytes(manifest(), constants, CODE))
    data = path.read_bytes()
    header = reader.parse_header(data)
    assert header.file_bytes == len(data) and header.alignment == 4096
    for section in (header.manifest, header.constants, header.code):
        part = data[section.offset : section.offset + section.bytes]
        assert len(part) == section.bytes and zlib.crc32(part) == section.crc
    assert header.constants.offset % 4096 == header.code.offset % 4096 == 0
    assert data[header.code.offset :][: len(CODE)] == CODE
    read = read_manifest(path)
    assert read["constants"] == [
        {"offset": 0, "bytes": 3},
        {"offset": 64, "bytes": 800},
        {"offset": 896, "bytes": 0},
        {"offset": 896, "bytes": 4},
    ]
    stored = data[header.constants.offset :][64:864]
    assert np.array_equal(np.frombuffer(stored), constants[1])
    assert read["inputs"] == [{"name": "x", "dtype": "float32", "shape": [1, "batch", "2*batch+1"]}]
    assert read["symbols"][0] == {"name": "batch", "lo": 1, "hi": 64, "multiple": 4}
    assert read["symbols"][1]["hi"] is None and read["target"]["features"] == ["avx2", "fma"]
    assert (read["entry"], read["format"], read["numerics"]) == (16, 2, "default")
    assert read["kernels"] == [{"name": "k_0123", "origin": "Conv_5"}]
    assert read["notes"] == {"winograd": [1, 2.5, None]}


def test_the_manifest_begins_at_a_whole_word() -> None:
    for more in range(9):
        data = artifact_bytes(manifest(), [], CODE + bytes(more))
        assert reader.parse_header(data).manifest.offset % 8 == 0


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "float16", "bool"])
def test_constants_of_any_dtype(name: str) -> None:
    weight = np.ones((2, 3), getattr(ml_dtypes, name, name))
    whole = artifact_bytes(manifest(), [weight, weight[:0]], CODE)
    start = reader.parse_header(whole).constants.offset
    assert whole[start : start + weight.nbytes] == weight.tobytes()


def test_equal_bytes_are_written_once(tmp_path: Path) -> None:
    """Whatever their type; bytes that differ between the samples are others."""
    one = np.arange(100_000, dtype=np.int64)
    other = one.copy()
    other[50_001] += 1
    data = artifact_bytes(manifest(), [one, other, one.copy().view(np.float64), b""], CODE)
    (tmp_path / "equal.tw").write_bytes(data)
    rows = read_manifest(tmp_path / "equal.tw")["constants"]
    assert rows[0] == rows[2] != rows[1] and rows[3]["bytes"] == 0
    section = reader.parse_header(data).constants
    assert 2 * one.nbytes <= section.bytes < 2 * one.nbytes + 128


def test_both_sides_agree() -> None:
    for name in ("MAGIC", "FORMAT_VERSION", "HEADER_BYTES"):
        assert getattr(writer, name) == getattr(reader, name)


def test_pages_of_aarch64_are_larger() -> None:
    data = artifact_bytes(manifest(target=TargetInfo("aarch64", (), "", 1)), [b"abc"], CODE)
    assert reader.parse_header(data).alignment == 65536


def test_same_arguments_same_bytes() -> None:
    once, again = (artifact_bytes(manifest(), iter([b"abc", b"d"]), CODE) for _ in range(2))
    assert once == again


def test_large_constants_stream(tmp_path: Path) -> None:
    big = np.memmap(tmp_path / "big", np.uint8, "w+", shape=(9 << 20,))
    big[::4096] = 7
    section = reader.parse_header(artifact_bytes(manifest(), [big], CODE)).constants
    assert section.bytes == big.size and section.crc == zlib.crc32(big)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"entry": 200}, "The entry 200 is not inside the image of 200 bytes"),
        ({"entry": -1}, "not inside the image"),
        ({"target": TargetInfo("riscv64", (), "", 1)}, "no runtime for the architecture 'riscv64'"),
        ({"messages": ("a\0b",)}, "holds a NUL character"),
    ],
)
def test_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        artifact_bytes(manifest(**fields), [], CODE)


def test_backslashes_are_no_nul() -> None:
    artifact_bytes(manifest(messages=("\\u0000", "a\\")), [], CODE)


def test_header_is_packed_as_documented() -> None:
    data = artifact_bytes(manifest(), [b"abc"], CODE)
    assert struct.unpack_from("<II", data, 8) == (2, 128)
    assert not any(data[88:124])
