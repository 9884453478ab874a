# SPDX-License-Identifier: Apache-2.0
"""The model table: its schema, what it holds, and how files are found and kept."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from benchmarks import zoo
from benchmarks.archives import ZooError
from benchmarks.inputs import RECIPES
from benchmarks.zoo import Model, Package, PackageFile, load_table, parse_table

CONTENT = b"a model"
TABLE = """
[package.pack]
registry = "pypi"
name = "pack"
version = "1.0"
licence = "MIT"
[[model]]
name = "net"
suite = "small"
package = "pack"
task = "test"
path = "pack/net.onnx"
sha256 = "%s"
[model.input.x]
recipe = "noise"
shape = ["n", 3]
"""
GOOD = TABLE % hashlib.sha256(CONTENT).hexdigest()
MODELS = list(load_table().models.values())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    return tmp_path / "zoo"


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the registry; lists what was downloaded."""
    done: list[str] = []

    def download(registry: str, name: str, version: str, folder: Path) -> Path:
        done.append(f"{registry}:{name}=={version}")
        with zipfile.ZipFile(folder / "pack.whl", "w") as archive:
            archive.writestr("pack/net.onnx", CONTENT)
        return folder / "pack.whl"

    monkeypatch.setattr(zoo, "download", download)
    return done


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_row_is_complete(model: Model) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", model.name)
    assert model.suite in zoo.SUITES
    assert model.package.licence
    assert model.inputs
    assert 1.0 <= model.slack <= 10.0
    for file in (*((model.source,) if model.source else ()), *model.weights):
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
    symbols = {dim for spec in model.inputs for dim in spec.shape if isinstance(dim, str)}
    assert len(model.sizes) == (3 if symbols else 1)
    for size in model.sizes:
        assert set(size) == symbols
        assert all(value >= 1 for value in size.values())
    for spec in model.inputs:
        assert spec.recipe in RECIPES


def test_suites_cover_the_table() -> None:
    suites = [load_table().suite(name) for name in zoo.SUITES]
    assert sum(map(len, suites)) == len(load_table().suite("core")) == len(MODELS)
    assert len(load_table().suite("light")) == 9
    with pytest.raises(ZooError, match="no suite 'big'"):
        load_table().suite("big")


def test_an_unknown_model_gets_a_suggestion() -> None:
    with pytest.raises(ZooError, match="did you mean resnet50"):
        load_table().model("resnet-50")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('suite = "small"', 'suite = "huge"'), "unknown suite 'huge'"),
        (('package = "pack"', 'package = "sack"'), "'net' lacks or misnames 'sack'"),
        (('task = "test"\n', ""), "'net' lacks or misnames 'task'"),
        (('registry = "pypi"', 'registry = "ftp"'), "no known registry: ftp"),
        (('path = "pack/net.onnx"\n', ""), "'net' needs a path, unless it is exported"),
    ],
)
def test_a_broken_row_is_named(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        parse_table(GOOD.replace(*change))


def test_a_model_named_twice_is_refused() -> None:
    with pytest.raises(ZooError, match="'net' stands in the table twice"):
        parse_table(GOOD + GOOD[GOOD.index("[[model]]") :])


def test_a_file_is_downloaded_once(cache: Path, downloads: list[str]) -> None:
    model = parse_table(GOOD).model("net")
    path = zoo.model_path(model)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(cache)
    assert zoo.model_path(model) == path
    assert downloads == ["pypi:pack==1.0"]


def test_a_damaged_copy_is_fetched_again(cache: Path, downloads: list[str]) -> None:
    model = parse_table(GOOD).model("net")
    zoo.model_path(model).write_bytes(b"damaged")
    assert zoo.model_path(model).read_bytes() == CONTENT
    assert len(downloads) == 2


def test_a_changed_package_is_refused(cache: Path, downloads: list[str]) -> None:
    with pytest.raises(ZooError, match="has SHA-256"):
        zoo.model_path(parse_table(TABLE % ("ab" * 32)).model("net"))
    assert not list(cache.rglob("*.onnx"))


def test_a_missing_export_says_how_to_make_it(cache: Path) -> None:
    with pytest.raises(ZooError, match=r"python -m benchmarks.export_torch resnet50"):
        zoo.model_path("resnet50")


def test_an_installed_package_is_used_in_place() -> None:
    path = zoo.model_path("light_squeezenet")
    assert path.name == "light_squeezenet.onnx"
    missing = Package("none", "installed", "no_such_package_here", "MIT")
    with pytest.raises(ZooError, match="is not installed"):
        zoo.fetch_file(PackageFile(missing, "x/y", "00" * 32))


def test_declared_shapes_replace_wrong_ones(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [10, 3, 32, 32])
        for name in ("x", "other", "h", "y")
    }
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Add", ["h", "other"], ["y"])]
    inputs = [values["x"], values["other"]]
    graph = helper.make_graph(nodes, "g", inputs, [values["y"]], value_info=[values["h"]])
    onnx.save(helper.make_model(graph), tmp_path / "old.onnx")
    shapes = {"x": ("n", 3, "h", "w")}
    path = zoo.declare_shapes(tmp_path / "old.onnx", shapes, tmp_path / "new.onnx")
    changed = onnx.load(path).graph
    assert [d.dim_param or d.dim_value for d in changed.input[0].type.tensor_type.shape.dim] == [
        *("n", 3, "h", "w")
    ]
    assert changed.input[1] == values["other"]
    assert not changed.value_info
    dims = changed.output[0].type.tensor_type.shape.dim
    assert [d.WhichOneof("value") for d in dims] == [None] * 4


def test_list_and_fetch_from_the_command_line(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert zoo.main(["--list", "magika"]) == 0
    assert capsys.readouterr().out.split()[:2] == ["magika", "small"]
    assert zoo.main(["--fetch", "gpt2"]) == 1
    assert "has not been exported yet" in capsys.readouterr().err
    assert zoo.main(["nothing_like_it"]) == 1
