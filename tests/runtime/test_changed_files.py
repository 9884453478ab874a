# SPDX-License-Identifier: Apache-2.0
"""What happens to an artifact's file while its model is loaded never makes a run wrong."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.artifact import PortInfo, SymbolInfo
from tilewright.errors import ArtifactError, ReadError
from tilewright.model import load as load_compiled
from tilewright.runtime import load
from tilewright.runtime.model import Model

Make = Callable[..., bytes]
MAPPED = 65 << 20
"""Bytes of constants that are mapped; fewer are copied."""


def artifact(make: Make, scale: float, size: int = 0) -> bytes:
    """Computes a scale times the sum of squares; there are ``size`` bytes of constants besides."""
    return make(
        "host_sum",
        inputs=(PortInfo("x", "float32", ("rows", 64)),),
        outputs=(PortInfo("y", "float32", (1,)),),
        constants=(np.float32(scale), np.zeros(size, np.uint8)),
        symbols=(SymbolInfo("rows"),),
    )


def result(model: Model) -> float:
    return float(model.run({"x": np.ones((2, 64), np.float32)})["y"][0])


@pytest.fixture(scope="module")
def bytes_of(make: Make) -> dict[str, bytes]:
    return {
        "small": artifact(make, 1),
        "small other": artifact(make, 2),
        "large": artifact(make, 1, MAPPED),
        "large other": artifact(make, 2, MAPPED),
    }


def overwrite(path: Path, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()


def touch(path: Path, content: bytes) -> None:
    os.utime(path)


def cut(path: Path, content: bytes) -> None:
    os.truncate(path, 5000)


def cut_off(path: Path, content: bytes) -> None:
    os.truncate(path, 0)


def append(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def copy_over(path: Path, content: bytes) -> None:
    path.with_name("copy").write_bytes(content)
    shutil.copyfile(path.with_name("copy"), path)


WRITES = [overwrite, touch, cut, cut_off, append, copy_over]


@pytest.mark.parametrize("ran", [True, False])
@pytest.mark.parametrize("write", WRITES)
def test_a_small_file_is_in_memory(
    bytes_of: dict[str, bytes], tmp_path: Path, write: Callable[..., None], ran: bool
) -> None:
    path = tmp_path / "m.tw"
    path.write_bytes(bytes_of["small"])
    model = load(path)
    if ran:
        assert result(model) == 128
    write(path, bytes_of["small other"])
    assert result(model) == 128


@pytest.mark.parametrize("write", WRITES)
def test_a_large_file_that_is_written_into(
    bytes_of: dict[str, bytes], tmp_path: Path, write: Callable[..., None]
) -> None:
    """Right after it was loaded, and it was made just before: times of files are coarse."""
    path = tmp_path / "m.tw"
    path.write_bytes(bytes_of["large"])
    model, copied = load(path), load(path, copy=True)
    assert result(model) == 128
    write(path, bytes_of["large other"])
    for _ in range(2):
        with pytest.raises(ArtifactError, match=r"'.*m\.tw' has been written into since .* renam"):
            result(model)
    assert result(copied) == 128


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_file_that_is_replaced_by_renaming(
    bytes_of: dict[str, bytes], tmp_path: Path, size: str
) -> None:
    path = tmp_path / "m.tw"
    path.write_bytes(bytes_of[size])
    model = load(path)
    path.with_name("new").write_bytes(bytes_of[f"{size} other"])
    os.replace(path.with_name("new"), path)
    assert (result(model), result(load(path))) == (128, 256)
    path.unlink()
    assert result(model) == 128


def test_a_change_at_once_is_noticed(bytes_of: dict[str, bytes], tmp_path: Path) -> None:
    """Within one tick of the clock that files have, a second write leaves the time as it is."""
    path = tmp_path / "m.tw"
    path.write_bytes(bytes_of["large"])
    for _ in range(5):
        with open(path, "r+b") as file:
            file.write(bytes_of["large"][:100])
        model = load(path, check_constants=False)
        with open(path, "r+b") as file:
            file.write(bytes_of["large"][:100])
        with pytest.raises(ArtifactError, match="has been written into"):
            result(model)


def test_a_change_during_a_run(bytes_of: dict[str, bytes], tmp_path: Path) -> None:
    """Other threads run the model meanwhile: each result is right, or there is an error."""
    path = tmp_path / "m.tw"
    path.write_bytes(bytes_of["large"])
    model, seen = load(path), set()

    def run() -> None:
        try:
            while True:
                seen.add(result(model))
        except ArtifactError as error:
            seen.add(type(error).__name__)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    overwrite(path, bytes_of["large other"])
    for thread in threads:
        thread.join()
    assert seen == {128.0, "ArtifactError"}


def test_descriptors_are_closed(bytes_of: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "m.tw"
    before = len(os.listdir("/proc/self/fd"))
    for content in (bytes_of["small"], bytes_of["large"], bytes_of["large"][:-1]):
        path.write_bytes(content)
        for copy in (True, False):
            try:
                result(load(path, copy=copy))
            except ArtifactError:
                assert content not in bytes_of.values()
    assert len(os.listdir("/proc/self/fd")) == before


def test_saving_what_has_changed(bytes_of: dict[str, bytes], tmp_path: Path) -> None:
    path, out = tmp_path / "m.tw", tmp_path / "out.tw"
    path.write_bytes(bytes_of["small"])
    model = load_compiled(path, copy=True)
    model.save(out)
    assert out.read_bytes() == bytes_of["small"]
    out.unlink()
    middle = bytearray(bytes_of["small"])
    middle[4096] ^= 1  # a constant: the header stays the same
    for content in (bytes(middle), bytes_of["small other"], b""):
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match="has changed since the model was loaded"):
            model.save(out)
        assert not out.exists()
    path.unlink()
    with pytest.raises(ReadError, match="No such file"):
        model.save(out)
