# SPDX-License-Identifier: Apache-2.0
"""What a model declares of its outputs, held against what its graph computes.

A wrong element type is an error, as it is for ONNX Runtime. A wrong shape is a warning: exporters
leave shapes behind that a later change of the graph made wrong, and nothing depends on them. Names
of dims are not compared.
"""

import logging

import onnx

from tilewright.frontends.names import quoted
from tilewright.frontends.onnx.tensors import dtype_of
from tilewright.ir.bounds import known_equal
from tilewright.ir.errors import FrontendError
from tilewright.ir.expr import index
from tilewright.ir.types import TensorType

_logger = logging.getLogger("tilewright")


def check_dtype(info: onnx.ValueInfoProto, computed: TensorType) -> None:
    """FrontendError if an output is declared with another element type than it has."""
    code = info.type.tensor_type.elem_type
    if code == onnx.TensorProto.UNDEFINED:
        return
    dtype = dtype_of(code, f"Output {quoted(info.name)}")
    if dtype is not computed.dtype:
        raise FrontendError(
            f"Output {quoted(info.name)} is declared as {dtype}, but the graph computes "
            f"{computed.dtype}. Declare what it computes, or cast it."
        )


def warn_of_shape(info: onnx.ValueInfoProto, computed: TensorType) -> None:
    """Warn if an output is declared with another rank or another number as a dim than it has."""
    if not info.type.tensor_type.HasField("shape"):
        return
    declared = info.type.tensor_type.shape.dim
    # A number below 1 stands for a dim that the exporter did not know.
    fits = len(declared) == computed.rank and all(
        d.dim_value < 1 or known_equal(index(d.dim_value), dim) is not False
        for d, dim in zip(declared, computed.shape, strict=True)
    )
    if not fits:
        shown = ", ".join(str(d.dim_value) if d.dim_value > 0 else "?" for d in declared)
        _logger.warning(
            "Output %s is declared with the shape [%s], but the graph computes %s.",
            quoted(info.name),
            shown,
            computed,
        )
