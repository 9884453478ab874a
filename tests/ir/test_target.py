# SPDX-License-Identifier: Apache-2.0
"""Targets: their texts, what they tell the passes, and this machine."""

import builtins
import re
from pathlib import Path
from typing import Any

import pytest

from tilewright.ir import target as target_module
from tilewright.ir.errors import TargetError
from tilewright.ir.target import is_generic, machine_identity, parse_target


@pytest.mark.parametrize(
    ("text", "bits", "registers", "fma"),
    [
        ("x86-64", 128, 16, False),
        ("x86-64-v2+fma", 128, 16, True),
        ("x86-64-v3,cores=4", 256, 16, True),
        ("x86-64-v4+avx512vnni", 512, 32, True),
        ("aarch64", 128, 32, True),
        ("aarch64+dotprod+fullfp16,cores=8", 128, 32, True),
    ],
)
def test_processors(text: str, bits: int, registers: int, fma: bool) -> None:
    target = parse_target(text)
    assert (target.vector_bits, target.registers, target.has_fma) == (bits, registers, fma)
    assert target.lanes(4) == bits // 32
    assert parse_target(str(target)) == target
    assert target.kind == "cpu"


@pytest.mark.parametrize("text", ["", "x86", "x86-64-v5", "aarch64-v2", "native,8", "cuda-x"])
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(TargetError, match=rf"^Target '{text}' is not understood\. Write 'native'"):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x86-64-v3+avx9", "has the unknown feature 'avx9'. Did you mean 'avx' or 'avx2'?"),
        ("x86-64+avx512vnn", "Did you mean 'avx512vnni' or "),
        ("aarch64+fp16", "'fullfp16'?"),
        ("aarch64+avx2", "has the unknown feature 'avx2'. Known are 'aes', 'bf16', "),
        ("x86-64+", "is not understood"),
        ("x86-64-v3,cores=0", "must have from 1 to 4096 cores."),
        ("x86-64-v3,cores=-1", "must have from 1 to 4096 cores."),
        ("native,cores=4097", "must have from 1 to 4096 cores."),
        ("native,cores=0", "must have from 1 to 4096 cores."),
        ("native,cores=99999999999", "must have from 1 to 4096 cores."),
        ("native,cores=" + "9" * 5000, "must have from 1 to 4096 cores."),
    ],
)
def test_what_no_machine_has(text: str, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    assert message in str(caught.value)


def test_known_features_are_those_that_the_runtime_can_tell() -> None:
    source = Path(__file__).parents[2] / "runtime" / "src" / "cpu.c"
    tables = re.findall(r"features\[\] = \{(.*?)\n\};", source.read_text(), re.DOTALL)
    names = [set(re.findall(r'\{"([^"]+)"', table)) for table in tables]
    assert names == [target_module._KNOWN["x86-64"], target_module._KNOWN["aarch64"]]
    for arch, used in target_module._USED.items():
        assert used <= target_module._KNOWN[arch]


def test_generic_targets() -> None:
    assert is_generic("x86-64") and is_generic("x86-64-v2,cores=2")
    assert not any(map(is_generic, ("x86-64-v3", "native", "aarch64", "x86-64+avx2")))


def test_native() -> None:
    assert parse_target("native,cores=3").cores == 3
    assert parse_target("native").vector_bits >= 128


def test_identity_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays, although clock rates vary; it follows the cores; and other systems ask LLVM."""
    first = machine_identity()
    assert first == machine_identity() and "MHz" not in first
    monkeypatch.setattr(target_module, "available_cores", lambda: 77)
    assert machine_identity() != first

    def no_file(name: Any, *args: Any, **options: Any) -> Any:
        raise FileNotFoundError(name)

    monkeypatch.setattr(builtins, "open", no_file)
    assert "cores=77" in machine_identity()
