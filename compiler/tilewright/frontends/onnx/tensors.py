# SPDX-License-Identifier: Apache-2.0
"""Tensor messages to numpy arrays: views of their bytes where the encoding allows it, checked
before any allocation.

Initialisers, tensor attributes and the parts of sparse tensors all come through :func:`to_array`,
so that the checks of sizes and of external data exist once.
"""

import math
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.frontends.names import quoted
from tilewright.frontends.onnx.external_data import ExternalData
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.weights import Bytes
from tilewright.ir import dtypes
from tilewright.ir.dtypes import DType
from tilewright.ir.errors import FrontendError
from tilewright.ir.op import Array
from tilewright.runtime.artifact import MAX_RANK

_P = onnx.TensorProto
DTYPES: dict[int, DType] = {
    _P.FLOAT: dtypes.F32,
    _P.DOUBLE: dtypes.F64,
    _P.FLOAT16: dtypes.F16,
    _P.BFLOAT16: dtypes.BF16,
    _P.FLOAT8E4M3FN: dtypes.F8E4M3FN,
    _P.FLOAT8E4M3FNUZ: dtypes.F8E4M3FNUZ,
    _P.FLOAT8E5M2: dtypes.F8E5M2,
    _P.FLOAT8E5M2FNUZ: dtypes.F8E5M2FNUZ,
    _P.FLOAT4E2M1: dtypes.F4E2M1,
    _P.INT64: dtypes.I64,
    _P.INT32: dtypes.I32,
    _P.INT16: dtypes.I16,
    _P.INT8: dtypes.I8,
    _P.INT4: dtypes.I4,
    _P.UINT64: dtypes.U64,
    _P.UINT32: dtypes.U32,
    _P.UINT16: dtypes.U16,
    _P.UINT8: dtypes.U8,
    _P.UINT4: dtypes.U4,
    _P.BOOL: dtypes.BOOL,
    _P.COMPLEX64: dtypes.C64,
    _P.COMPLEX128: dtypes.C128,
    _P.STRING: dtypes.STRING,
}
CODE_NAMES: frozenset[str] = frozenset(_P.DataType.keys())
CODES: dict[DType, int] = {dtype: code for code, dtype in DTYPES.items()}


def dtype_of(code: int, what: str) -> DType:
    """The element type of an ONNX type code; FrontendError naming ``what`` if there is none."""
    dtype = DTYPES.get(code)
    if dtype is None:
        known = _P.DataType.Name(code) if code in _P.DataType.values() else str(code)
        raise FrontendError(
            f"{what} has element type {known}, which is not supported. Convert it to another type."
        )
    return dtype


def dtype_named(name: str, what: str) -> DType:
    """The element type of the name of an ONNX type code, such as ``FLOAT``."""
    if name not in CODE_NAMES:
        raise FrontendError(
            f"{what} has element type {quoted(name)}, which is none. Export the model again."
        )
    return dtype_of(_P.DataType.Value(name), what)


def to_array(
    tensor: onnx.TensorProto,
    external: ExternalData,
    limits: Limits,
    cut: Bytes | None = None,
) -> Array:
    """The tensor as an array in its own shape; FrontendError if its data does not fit. ``cut`` is
    its ``raw_data`` where that was taken out of the message.
    """
    what = f"Tensor {quoted(tensor.name)}"
    dtype = dtype_of(tensor.data_type, what)
    if dtype is dtypes.STRING:
        raise FrontendError(f"{what} holds strings, which are not supported yet.")
    shape = tuple(tensor.dims)
    count = checked_size(shape, what, limits)
    if tensor.HasField("segment"):
        raise FrontendError(
            f"{what} is stored in segments, which no known tool writes. Save it whole."
        )
    size = (count * dtype.bits + 7) // 8 if dtype.bits < 8 else count * dtype.bytes
    if tensor.data_location == _P.EXTERNAL:
        data = external.read(tensor.name, [(e.key, e.value) for e in tensor.external_data], size)
        return _from_bytes(data, dtype, shape, tensor)
    if cut is not None or tensor.HasField("raw_data"):
        raw: Any = tensor.raw_data if cut is None else cut
        if len(raw) != size:
            raise FrontendError(
                f"{what} of type {dtype}{list(shape)} needs {size} bytes of data but has "
                f"{len(raw)}. "
                "Fetch or export the model again."
            )
        return _from_bytes(raw, dtype, shape, tensor)
    return _from_fields(tensor, dtype, shape, count, what)


def check_rank(rank: int, what: str) -> None:
    """FrontendError naming ``what`` if it has more dims than numpy and an artifact can hold."""
    if rank > MAX_RANK:
        raise FrontendError(
            f"{what} has rank {rank}; {MAX_RANK} is the most. Reshape it to fewer dims."
        )


def checked_size(shape: tuple[int, ...], what: str, limits: Limits) -> int:
    """The number of elements of a shape from a file; FrontendError if negative or too large."""
    if any(d < 0 for d in shape):
        raise FrontendError(
            f"{what} has the negative dim {min(shape)}. Fetch or export the model again."
        )
    check_rank(len(shape), what)
    count = math.prod(shape)
    limits.check(f"The number of elements of {what[0].lower()}{what[1:]}", count, "elements")
    return count


def _from_bytes(data: Any, dtype: DType, shape: tuple[int, ...], tensor: onnx.TensorProto) -> Array:
    if dtype.bits < 8:
        return _unpacked(np.frombuffer(data, np.uint8), dtype, shape)
    array = np.frombuffer(data, dtype.numpy.newbyteorder("<")).reshape(shape)
    if not array.dtype.isnative:
        return array.astype(dtype.numpy)
    # The bytes of a message begin anywhere; code that is called with arrays wants them aligned.
    return array if array.flags.aligned else array.copy()


def _unpacked(packed: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Two elements a byte, the first in the low half."""
    halves = np.empty(packed.size * 2, np.uint8)
    halves[0::2] = packed & 15
    halves[1::2] = packed >> 4
    halves = halves[: math.prod(shape)]
    if dtype is dtypes.F4E2M1:
        return halves.view(dtype.numpy).reshape(shape)
    if dtype.is_signed:
        return (halves.astype(np.int8) ^ 8).__sub__(8).astype(dtype.numpy).reshape(shape)
    return halves.astype(dtype.numpy).reshape(shape)


def _from_fields(
    tensor: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], count: int, what: str
) -> Array:
    """Data in the typed fields of the message; onnx decodes it once the length is known to fit."""
    name = {
        dtypes.F32: "float_data",
        dtypes.C64: "float_data",
        dtypes.F64: "double_data",
        dtypes.C128: "double_data",
        dtypes.I64: "int64_data",
        dtypes.U64: "uint64_data",
        dtypes.U32: "uint64_data",
    }.get(dtype, "int32_data")
    stored = len(getattr(tensor, name))
    needed = count * 2 if dtype.kind == "complex" else count
    if dtype.bits < 8:
        needed = (count + 1) // 2
    if stored != needed:
        raise FrontendError(
            f"{what} of type {dtype}{list(shape)} needs {needed} entries in '{name}' but has "
            f"{stored}. "
            "Fetch or export the model again."
        )
    if dtype.bits < 8:
        return _unpacked(np.array(tensor.int32_data, np.int64).astype(np.uint8), dtype, shape)
    return np.asarray(numpy_helper.to_array(tensor)).reshape(shape)


def sparse_to_array(
    tensor: onnx.SparseTensorProto, external: ExternalData, limits: Limits
) -> Array:
    """The dense form of a sparse tensor."""
    what = f"Sparse tensor {quoted(tensor.values.name)}"
    shape = tuple(tensor.dims)
    # Dense storage is allocated from a few bytes of file: a tighter bound than for stored data.
    size = checked_size(shape, what, limits)
    limits.check(f"The number of elements of {what[0].lower()}{what[1:]}", size >> 6, "folded")
    values = to_array(tensor.values, external, limits)
    indices = to_array(tensor.indices, external, limits)
    flat = indices
    if indices.ndim == 2 and indices.shape == (values.size, len(shape)):
        in_range = bool(np.all((indices >= 0) & (indices < np.array(shape, np.int64))))
        flat = np.ravel_multi_index(tuple(indices.T), shape) if in_range else np.array([-1])
    in_range = flat.ndim == 1 and bool(np.all((flat >= 0) & (flat < size)))
    if values.ndim != 1 or flat.shape != values.shape or not in_range:
        raise FrontendError(
            f"{what} has indices of shape {list(indices.shape)} that do not fit its values and "
            f"dims {list(shape)}. "
            "Fetch or export the model again."
        )
    dense = np.zeros(size, values.dtype)
    dense[flat] = values
    return dense.reshape(shape)
