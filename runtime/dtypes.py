# SPDX-License-Identifier: Apache-2.0
"""Element types at run time: the mirror of ``enum tw_dtype`` in ``include/tw_abi.h``.

Names are those of manifests and of numpy. The narrow floats, bfloat16 and the integers of 4 and 2
bits are ``ml_dtypes``'s, which is imported only when a model has one of them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.runtime.errors import UnsupportedError


@dataclass(frozen=True)
class DType:
    """One row: name, the code in artifacts, DLPack's type code and width, bytes of an element."""

    name: str
    code: int
    dlpack_code: int
    bits: int
    itemsize: int
    alignment: int
    extension: bool = False

    @cached_property
    def numpy(self) -> "np.dtype[Any]":
        """The numpy dtype; raises UnsupportedError if it needs ml_dtypes and that is missing."""
        if not self.extension:
            return np.dtype(self.name)
        try:
            import ml_dtypes
        except ImportError as error:
            raise UnsupportedError(
                f"Dtype '{self.name}' needs the Python package 'ml_dtypes': install it."
            ) from error
        if not hasattr(ml_dtypes, self.name):
            raise UnsupportedError(f"Dtype '{self.name}' needs a newer 'ml_dtypes': update it.")
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name))
        return dtype

    @cached_property
    def storage(self) -> "np.dtype[Any]":
        """A dtype of the same size that numpy exports as a buffer."""
        return np.dtype(f"uint{8 * self.itemsize}" if self.extension else self.name)


_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

DTYPES: tuple[DType, ...] = (
    DType("bool", 1, _BOOL, 8, 1, 1),
    DType("int8", 2, _INT, 8, 1, 1),
    DType("int16", 3, _INT, 16, 2, 2),
    DType("int32", 4, _INT, 32, 4, 4),
    DType("int64", 5, _INT, 64, 8, 8),
    DType("uint8", 6, _UINT, 8, 1, 1),
    DType("uint16", 7, _UINT, 16, 2, 2),
    DType("uint32", 8, _UINT, 32, 4, 4),
    DType("uint64", 9, _UINT, 64, 8, 8),
    DType("float16", 10, _FLOAT, 16, 2, 2),
    DType("bfloat16", 11, _BFLOAT, 16, 2, 2, True),
    DType("float32", 12, _FLOAT, 32, 4, 4),
    DType("float64", 13, _FLOAT, 64, 8, 8),
    DType("complex64", 14, _COMPLEX, 64, 8, 4),
    DType("complex128", 15, _COMPLEX, 128, 16, 8),
    DType("float8_e4m3fn", 16, 10, 8, 1, 1, True),
    DType("float8_e4m3fnuz", 17, 11, 8, 1, 1, True),
    DType("float8_e5m2", 18, 12, 8, 1, 1, True),
    DType("float8_e5m2fnuz", 19, 13, 8, 1, 1, True),
    DType("float8_e8m0fnu", 20, 14, 8, 1, 1, True),
    DType("int4", 21, _INT, 4, 1, 1, True),
    DType("uint4", 22, _UINT, 4, 1, 1, True),
    DType("int2", 23, _INT, 2, 1, 1, True),
    DType("uint2", 24, _UINT, 2, 1, 1, True),
    DType("float4_e2m1fn", 25, 17, 4, 1, 1, True),
)

BY_CODE: dict[int, DType] = {dtype.code: dtype for dtype in DTYPES}
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in DTYPES}
