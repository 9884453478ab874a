# SPDX-License-Identifier: Apache-2.0
"""The package itself: its names, what importing it costs, and what saved models need."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.targets import fixed_target

SOURCES = Path(tilewright.__file__).parent.parent
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError(f"'{{name}}' is blocked")

sys.meta_path.insert(0, Blocker())
"""


def python(code: str, *arguments: str) -> str:
    """Runs code in a process of its own and returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PYTHONPATH": str(SOURCES), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_name_is_there() -> None:
    for name in tilewright.__all__:
        assert getattr(tilewright, name) is not None
    assert set(tilewright.__all__) <= set(dir(tilewright))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tilewright.nothing  # noqa: B018


def test_every_error_is_there() -> None:
    for name in tilewright.errors.__all__:
        error = getattr(tilewright.errors, name)
        assert issubclass(error, tilewright.errors.TilewrightError)


def test_importing_it_imports_no_other_package() -> None:
    code = """
import sys
before = set(sys.modules)
import tilewright
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(tops - set(sys.stdlib_module_names)))
"""
    assert python(code).strip() == "['tilewright']"


def test_a_saved_model_runs_without_the_compilers_packages(
    digits_file: Path, images: np.ndarray, digits: tilewright.CompiledModel, tmp_path: Path
) -> None:
    np.save(tmp_path / "images.npy", images)
    blocked = {
        "llvmlite",
        "islpy",
        "onnx",
        "networkx",
        "ml_dtypes",
        "rich",
        "typer",
        "platformdirs",
    }
    code = (
        BLOCKER.format(blocked=blocked)
        + """
import numpy as np
import tilewright
model = tilewright.load(sys.argv[1])
session = tilewright.InferenceSession(sys.argv[1])
images = np.load(sys.argv[2])
logits = model.run({"image": images})["logits"]
assert np.array_equal(session.run(None, {"image": images})[0], logits)
np.save(sys.argv[3], logits)
"""
    )
    out = tmp_path / "logits.npy"
    python(code, str(digits_file), str(tmp_path / "images.npy"), str(out))
    np.testing.assert_array_equal(np.load(out), digits(images))


MISSING = """
import sys

missing = sys.argv[1]

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Missing())
"""


def test_without_the_compilers_packages() -> None:
    code = f"{MISSING}\nimport tilewright\ntry:\n    tilewright.compile\nexcept ImportError as e:"
    said = python(f"{code}\n    print(e)", "onnx")
    assert said.startswith("'tilewright.compile': This needs the Python package 'onnx', which is")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("tilewright.backend", "import tilewright.backend"),
        ("tilewright.InferenceSession", "import tilewright; tilewright.InferenceSession('m.onnx')"),
    ],
)
def test_parts_that_need_the_compilers_packages(name: str, statement: str) -> None:
    code = f"{MISSING}\ntry:\n    {statement}\nexcept ImportError as e:\n    print(e)"
    said = python(code, "onnx")
    assert said.startswith(f"'{name}") and len(said.splitlines()) == 1
    assert "This needs the Python package 'onnx', which is not installed" in said


@pytest.mark.parametrize("package", ["typer", "onnx"])
def test_the_command_without_its_packages(package: str) -> None:
    model = SOURCES / "tilewright" / "data" / "digits.onnx"
    code = f"""{MISSING}
from tilewright.__main__ import run
sys.argv = ["tilewright", "compile", {str(model)!r}, "--no-cache", "-o", "/tmp/none.tw"]
run()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, package],
        env={"PYTHONPATH": str(SOURCES), "PATH": "", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith(f"Error: This needs the Python package '{package}', which is not")


def test_cached_kernels_need_no_proof(cache: Path, tmp_path: Path) -> None:
    """The second compilation of a model in a new process takes its kernels from the cache."""
    code = (
        BLOCKER.format(blocked={"islpy"})
        + """
from pathlib import Path
import tilewright
options = tilewright.CompileOptions(cache_dir=Path(sys.argv[1]))
model = tilewright.compile(sys.argv[2], sys.argv[4], options=options)
assert all(kernel.cached for kernel in model.report.kernels)
model.save(sys.argv[3])
"""
    )
    source = str(SOURCES / "tilewright" / "data" / "digits.onnx")
    target, options = str(fixed_target()), tilewright.CompileOptions(cache_dir=cache / "objects")
    tilewright.compile(source, target, options=options).save(tmp_path / "first.tw")
    python(code, str(cache / "objects"), source, str(tmp_path / "again.tw"), target)
    assert (tmp_path / "again.tw").read_bytes() == (tmp_path / "first.tw").read_bytes()


@pytest.mark.parametrize("form", ["missing", "text file"])
def test_an_incomplete_checkout_says_so(form: str, tmp_path: Path) -> None:
    """Archives drop symbolic links; git without symlinks leaves text files in their place."""
    package = tmp_path / "tilewright"
    package.mkdir()
    for name in ("__init__.py", "requirements.py", "version.py"):
        (package / name).write_text((SOURCES / "tilewright" / name).read_text())
    if form == "text file":
        (package / "ir").write_text("../../ir")
    done = subprocess.run(
        [sys.executable, "-c", "import tilewright"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: The checkout of Tilewright in ")
    assert "'ir', 'passes', 'codegen', 'autotune', 'runtime' lead nowhere" in last
