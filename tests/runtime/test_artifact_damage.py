# SPDX-License-Identifier: Apache-2.0
"""Artifacts that are damaged, incomplete, senseless or for another machine: each is refused."""

import json
import random
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tilewright.codegen.artifact import DefaultInfo, PortInfo
from tilewright.runtime import load, read_manifest
from tilewright.runtime.errors import (
    ArtifactError,
    RunError,
    TargetMismatchError,
    UnsupportedError,
)

Make = Callable[..., bytes]
HEADER = struct.Struct("<8sIIQQQQQQQIIII36xI")


def with_header(data: bytes, index: int, value: Any) -> bytes:
    """``data`` with one field of its header changed, and the header's checksum made right."""
    fields = list(HEADER.unpack_from(data))
    fields[index] = value
    fixed = HEADER.pack(*fields)[:-4]
    return fixed + struct.pack("<I", zlib.crc32(fixed)) + data[128:]


def with_manifest(data: bytes, text: bytes) -> bytes:
    """``data`` with another manifest, and all checksums right."""
    offset = HEADER.unpack_from(data)[4]
    data = data[:offset] + text
    for index, value in ((3, len(data)), (5, len(text)), (10, zlib.crc32(text))):
        data = with_header(data, index, value)
    return data


def manifest_of(data: bytes) -> dict[str, Any]:
    offset, size = HEADER.unpack_from(data)[4:6]
    manifest: dict[str, Any] = json.loads(data[offset : offset + size])
    return manifest


def test_changes_that_keep_the_checksums_are_fine(make: Make) -> None:
    data = make(constants=(b"abc",))
    assert with_header(data, 3, len(data)) == data
    assert with_manifest(data, json.dumps(manifest_of(data), indent=1).encode()) != data
    load(with_manifest(data, json.dumps(manifest_of(data), indent=1).encode()))


# Fields: 0 magic, 1 version, 2 header bytes, 3 file bytes, 4-9 offset and bytes of the manifest,
# the constants and the code, 10-12 their checksums, 13 the alignment.
@pytest.mark.parametrize("index", range(1, 14))
def test_header_fields(make: Make, index: int) -> None:
    data = make(constants=(b"abc",))
    old = HEADER.unpack_from(data)[index]
    top = 2**32 - 1 if index in (1, 2, 10, 11, 12, 13) else 2**64 - 1
    for value in {0, 1, old + 1, old - 1, old ^ 0xFF, top, top // 2, top - 4095} - {old}:
        with pytest.raises(ArtifactError):
            load(with_header(data, index, value))


@pytest.mark.parametrize("section", [4, 6, 8])
def test_sections_reach_to_the_end_of_the_file_and_no_further(make: Make, section: int) -> None:
    """Each bound by itself is an error of the header, before anything is read."""
    data = make(constants=(b"abc",))
    room = len(data) - HEADER.unpack_from(data)[section]
    for index, value in (
        (section + 1, room + 1),  # behind the end
        (section + 1, 2**62),  # more than is allowed
        (section, 0),  # in the header
        (section, (len(data) // 4096 + 2) * 4096),  # begins behind the end
    ):
        with pytest.raises(ArtifactError, match="header of the artifact contradicts itself"):
            load(with_header(data, index, value))
    if room == HEADER.unpack_from(data)[section + 1]:  # it is the last one
        load(data)
    else:
        with pytest.raises(ArtifactError, match="checksum"):
            load(with_header(data, section + 1, room))


def test_magic_and_version(make: Make) -> None:
    data = make()
    with pytest.raises(ArtifactError, match=r"^This is not a Tilewright artifact\.$"):
        load(b"PK" + data[2:])
    with pytest.raises(ArtifactError, match="format version 3, but this runtime reads version 2"):
        load(with_header(data, 1, 3))
    with pytest.raises(ArtifactError, match="The header of the artifact is damaged"):
        load(data[:20] + b"\xff" + data[21:])


def test_truncations(make: Make, tmp_path: Path) -> None:
    data = make(constants=(b"abc" * 50,))
    path = tmp_path / "short.tw"
    for size in [*range(0, 300, 7), *range(300, len(data), 911), len(data) - 1]:
        path.write_bytes(data[:size])
        for source in (data[:size], path):
            with pytest.raises(ArtifactError):
                load(source)
        with pytest.raises(ArtifactError):
            read_manifest(path)
    with pytest.raises(ArtifactError, match=f"should have {len(data)} bytes, but has"):
        load(data + b"\0")


def test_flipped_bits(make: Make) -> None:
    """Every flip in a section or the header is found; the padding between them does not count."""
    data = make(constants=(b"abc" * 50,))
    fields = HEADER.unpack_from(data)
    spans = [(0, 128), *((fields[i], fields[i] + fields[i + 1]) for i in (4, 6, 8))]
    generator = random.Random(1)
    for _ in range(400):
        begin, end = generator.choice(spans)
        place = generator.randrange(begin, end)
        damaged = bytearray(data)
        damaged[place] ^= 1 << generator.randrange(8)
        with pytest.raises(ArtifactError):
            load(damaged)


def test_constants_check_can_be_skipped(make: Make) -> None:
    data = bytearray(make(constants=(b"abc" * 50,)))
    data[HEADER.unpack_from(data)[6]] ^= 1
    with pytest.raises(ArtifactError, match="the checksum of its constants is wrong"):
        load(data)
    load(data, check_constants=False)


NONSENSE = [
    b"", b"x", b"{", b"[]", b"{}", b"null", b"1e9", b'"', b'{"format":1}', b"[" * 100_000,
    b'{"a":' * 100_000, b"[1,]", b"[1 2]", b"{1:2}", b'{"a" 1}', b"01", b"-", b"1.", b"1e", b"tru",
    b'"\\x"', b'"\\u12"', b'"\\ud800"', b'"\\ud800\\u0041"', b'"\\u0000"', b'"\xff"', b'"\xe2\x82"',
    b'"a\nb"', b"{}{}", b"\0", b'{"format":1\0}', b"[" + b"1," * 100_000, b"\xef\xbb\xbf{}",
]  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE, ids=lambda text: repr(text[:20]))
def test_nonsense_manifests(make: Make, text: bytes) -> None:
    with pytest.raises(ArtifactError):
        load(with_manifest(make(), text))


def test_escapes(make: Make) -> None:
    data = make()
    manifest = manifest_of(data)
    name = 'é€😀"\\/\b\f\n\r\t' + "x" * 5000
    manifest["inputs"][0]["name"] = name
    for ascii_only in (True, False):
        text = json.dumps(manifest, ensure_ascii=ascii_only).encode()
        assert load(with_manifest(data, text)).inputs[0].name == name


WRONG = [
    ("format", 3), ("format", None), ("format", 1.0), ("target", []), ("target.arch", 1),
    ("target.features", "avx2"), ("target.features", [1]), ("inputs", {}), ("inputs", [1]),
    ("inputs.0.name", None), ("inputs.0.dtype", "float33"), ("inputs.0.dtype", "string"),
    ("inputs.0.shape", 3), ("inputs.0.shape", [-1]), ("inputs.0.shape", [1.5]),
    ("inputs.0.default", 1), ("inputs.0.default", {"constant": 0}),
    ("inputs.0.default", {"constant": 1, "shape": [1]}),
    ("inputs.0.default", {"constant": -1, "shape": [1]}),
    ("inputs.0.default", {"constant": 0, "shape": [49]}),
    ("inputs.0.default", {"constant": 0, "shape": [-1]}),
    ("inputs.0.default", {"constant": 0, "shape": [1, 1]}),
    ("inputs.0.default", {"constant": 0, "shape": ["n"]}),
    ("inputs.0.shape", [None]), ("inputs.0.shape", [1] * 65), ("inputs.0.shape", [2**63]),
    ("symbols", None), ("symbols", [{"name": 3}]), ("symbols", [{"name": "n"}, {"name": "n"}]),
    ("symbols", [{"name": "n", "multiple": 0}]), ("symbols", [{"name": "n", "lo": "1"}]),
    ("symbols", [{"name": "n", "hi": 2**63}]), ("messages", [1]), ("messages", None),
    ("kernels", [{}]), ("kernels", 1), ("constants", [{"offset": 0}]),
    ("constants", [{"offset": 0, "bytes": 193}]), ("constants", [{"offset": 1, "bytes": 1}]),
    ("constants", [{"offset": -64, "bytes": 64}]), ("constants", [{"offset": 64, "bytes": -1}]),
    ("constants", [{"offset": 2**62, "bytes": 2**62}]),
    ("constants", [{"offset": 256, "bytes": 0}]),
    ("entry", -1), ("entry", 2**40), ("entry", "0"), ("entry", None),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_members(make: Make, path: str, value: Any) -> None:
    data = make(constants=(b"abc" * 64,))
    manifest = manifest_of(data)
    *parents, last = path.split(".")
    holder: Any = manifest
    for key in parents:
        holder = holder[int(key) if key.isdigit() else key]
    holder[last] = value
    with pytest.raises((ArtifactError, UnsupportedError)) as caught:
        load(with_manifest(data, json.dumps(manifest).encode()))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        {},
        {"entry": 0},
        {"entry": -1, "first_kernel": 1},
        {"entry": 2**40, "first_kernel": 1},
        {"entry": 0.5, "first_kernel": 1},
        {"entry": 0, "first_kernel": 3},
        {"entry": 0, "first_kernel": -1},
        {"entry": 0, "first_kernel": "1"},
    ],
    ids=str,
)
def test_wrong_entries_for_defaults(make: Make, value: Any) -> None:
    given = PortInfo("x", "float32", ("n",), DefaultInfo(0, (2,)))
    data = make(constants=(b"abcdefgh",), inputs=(given,), defaults_entry="host_copy")
    manifest = manifest_of(data)
    manifest["defaults_entry"] = value
    with pytest.raises(ArtifactError, match=r"'defaults_entry' .* is missing or wrong\."):
        load(with_manifest(data, json.dumps(manifest).encode()))
    del manifest["defaults_entry"]  # as files of before have it
    load(with_manifest(data, json.dumps(manifest).encode()))


def test_an_entry_for_defaults_needs_defaults(make: Make) -> None:
    with pytest.raises(ArtifactError, match="'defaults_entry'"):
        load(make(defaults_entry="host_copy"))


def test_missing_members(make: Make) -> None:
    data = make()
    optional = {"tool", "numerics", "unchecked_indices", "host", "notes"}
    for key in manifest_of(data).keys() - optional:
        manifest = manifest_of(data)
        del manifest[key]
        with pytest.raises(ArtifactError, match="is missing or wrong"):
            load(with_manifest(data, json.dumps(manifest).encode()))


def test_mutated_manifests(make: Make) -> None:
    """Random edits of the text with right checksums: loaded or refused, never a fault."""
    default = PortInfo("x", "float32", ("n",), DefaultInfo(0, (2,)))
    data = make(constants=(b"abcdefgh",), inputs=(default,), defaults_entry="host_copy")
    offset, size = HEADER.unpack_from(data)[4:6]
    generator = random.Random(2)
    for _ in range(1500):
        text = bytearray(data[offset : offset + size])
        for _ in range(generator.randrange(1, 4)):
            begin = generator.randrange(len(text))
            end = min(len(text), begin + generator.randrange(6))
            text[begin:end] = generator.choice(
                [b"", b"}", b'"', b"[", b"-1", b"\\", b"9" * 19, bytes([generator.randrange(256)])]
            )
        with suppress(RunError):
            load(with_manifest(data, bytes(text)))


def test_other_targets(make: Make) -> None:
    other = "aarch64" if make() == make(arch="x86_64") else "x86_64"
    with pytest.raises(TargetMismatchError, match=f"The artifact is for '{other}', but this"):
        load(make(arch=other))
    with pytest.raises(TargetMismatchError, match=r"'avx99', 'sse9000', which .*'--target native'"):
        load(make(features=("avx99", "sse9000")))


def test_missing_processor_features(make: Make) -> None:
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text().split() if cpuinfo.exists() else []
    if "avx2" not in flags:
        pytest.skip("the processor is not one that the test knows")
    load(make(features=("sse2", "avx", "avx2", "cx16")))
    names = {"avx512fp16": "avx512_fp16", "avx512bf16": "avx512_bf16", "avx512f": "avx512f"}
    for name, flag in names.items():
        if flag not in flags:
            with pytest.raises(TargetMismatchError, match=f"needs the processor features '{name}'"):
                load(make(features=("avx2", name)))
        else:
            load(make(features=("avx2", name)))


def test_read_manifest(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "model.tw"
    path.write_bytes(make(arch="aarch64"))
    assert read_manifest(path)["target"]["arch"] == "aarch64"
    path.write_bytes(with_manifest(make(), b"[" * 100_000))
    with pytest.raises(ArtifactError, match="no JSON"):
        read_manifest(path)
