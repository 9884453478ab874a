# SPDX-License-Identifier: Apache-2.0
"""Defaults of inputs that do not belong to them are told."""

import numpy as np
import pytest

from tilewright.ir.errors import VerifyError
from tilewright.ir.graph import ConstantRef
from tilewright.ir.graph_parser import parse_module
from tilewright.ir.verify_graph import verify_module

MODULE = """
module {
  symbol n in [0, 64]
  graph @main(x: f32[n,3]) -> (y) {
    return x
  }
}
"""


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("z", np.zeros((2, 3), np.float32), "'z' has a default, but is no input"),
        ("x", np.zeros((2, 4), np.float32), r"of 'x' is f32\[2, 4\], not f32\[n,3\]"),
        ("x", np.zeros(3, np.float32), r"of 'x' is f32\[3\], not"),
        ("x", np.zeros((2, 3)), r"of 'x' is f64\[2, 3\], not"),
    ],
)
def test_wrong_defaults(name: str, array: np.ndarray, message: str) -> None:
    module = parse_module(MODULE)
    module.defaults[name] = module.constants.add(array)
    with pytest.raises(VerifyError, match=rf"\[G14\] .*{message}"):
        verify_module(module)


def test_a_default_that_is_not_stored() -> None:
    module = parse_module(MODULE)
    ref = module.constants.add(np.zeros((2, 3), np.float32))
    module.defaults["x"] = ref
    verify_module(module)
    module.defaults["x"] = ConstantRef("0" * 64, ref.dtype, ref.shape)
    with pytest.raises(VerifyError, match="The default of 'x' is not in the store"):
        verify_module(module)
