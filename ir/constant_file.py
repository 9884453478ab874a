# SPDX-License-Identifier: Apache-2.0
"""The side file of a module's text: an npz with the bytes of its constants.

Text names a constant by its hash. The file has one entry for each, called ``HASH:DTYPE:SHAPE``;
element types that numpy lacks are stored as bytes. Loading checks every hash.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir.dtypes import BY_NAME, STRING, from_numpy
from tilewright.ir.errors import ParseError
from tilewright.ir.graph import ConstantStore


def save_constants(path: Path | str, constants: ConstantStore) -> None:
    """Write all constants of a store to a file."""
    entries: dict[str, Any] = {}
    for key, array in constants.items():
        dtype = from_numpy(array.dtype)
        shape = "x".join(map(str, array.shape))
        flat = np.ascontiguousarray(array).reshape(-1)
        if dtype is STRING:
            flat = flat.astype(np.str_)
        elif not array.dtype.isbuiltin or dtype.name not in np.sctypeDict:
            flat = flat.view(np.uint8)
        entries[f"{key}:{dtype}:{shape}"] = flat
    with open(path, "wb") as file:
        np.savez(file, **entries)


def load_constants(path: Path | str) -> ConstantStore:
    """The store that :func:`save_constants` wrote; ParseError if the file is damaged, OSError if it
    cannot be read.
    """
    try:
        return _loaded(path)
    except (OSError, MemoryError, ParseError):
        raise
    except Exception as error:  # a damaged file ends in errors of many of Python's parsers
        raise ParseError(
            f"File '{path}' holds no constants of a module, or is damaged. Write it again, with "
            "--save-constants."
        ) from error


def _loaded(path: Path | str) -> ConstantStore:
    store = ConstantStore()
    with np.load(path, allow_pickle=False) as archive:
        for entry in archive.files:
            key, name, dims = entry.split(":")
            if name not in BY_NAME:
                raise ParseError(f"Constant '{entry}' of '{path}' has an unknown element type.")
            dtype = BY_NAME[name]
            flat = archive[entry]
            if dtype is STRING:
                flat = flat.astype(object)
            elif flat.dtype != dtype.numpy:
                flat = flat.view(dtype.numpy)
            array = flat.reshape([int(d) for d in dims.split("x") if d])
            if store.add(array).sha256 != key:
                raise ParseError(f"Constant '{key}' of '{path}' is damaged: its hash differs.")
    return store
