# SPDX-License-Identifier: Apache-2.0
"""The models of operator set 6 that ONNX brings along, with the values that PyTorch computed."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.frontends.onnx_running import Array, compared, imported

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
MODELS = [*sorted(DATA.glob("pytorch-converted/*")), *sorted(DATA.glob("pytorch-operator/*"))]


def arrays(folder: Path, what: str) -> list[Array]:
    """The arrays of a data set, in order."""
    count = len(list(folder.glob(f"{what}_*.pb")))
    paths = [folder / f"{what}_{number}.pb" for number in range(count)]
    return [np.asarray(numpy_helper.to_array(onnx.load_tensor(str(path)))) for path in paths]


def test_most_of_them_are_early() -> None:
    versions = [onnx.load(str(m / "model.onnx")).opset_import[0].version for m in MODELS]
    assert versions.count(6) > 100


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.name)
def test_model(model: Path) -> None:
    proto = onnx.load(str(model / "model.onnx"))
    for folder in sorted(model.glob("test_data_set_*")):
        given = {t.name for t in proto.graph.initializer}
        names = [info.name for info in proto.graph.input if info.name not in given]
        results = imported(proto, dict(zip(names, arrays(folder, "input"))))
        wanted = arrays(folder, "output")
        for (name, mine), theirs in zip(results.items(), wanted, strict=True):
            difference = compared(mine, theirs, 1e-3, 1e-5)
            assert difference is None, f"{name}: {difference}"
