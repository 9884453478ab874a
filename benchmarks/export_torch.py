# SPDX-License-Identifier: Apache-2.0
"""Export networks from PyTorch to ONNX, into the zoo's cache folder.

    python -m benchmarks.export_torch --all
    python -m benchmarks.export_torch resnet50 gpt2 --folder DIR

Needs the extra `export`, and timm installed without its dependencies (`pip install --no-deps
timm==1.0.31`), since they name a torchvision and none matches the pinned torch. Each file is run by
ONNX Runtime and compared with torch before it is kept; the same versions give the same file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.archives import ZooError, write_whole
from benchmarks.zoo import cache_folder, load_table

OPSET = 18
LONGEST_DIM = 1024


def _dynamic_shapes(network: Any) -> Any:
    """Axes of equal name become one torch dim; a variadic forward takes them as one argument."""
    import torch

    from benchmarks.torch_networks import Call

    names = {name for axes in network.dynamic for name in axes.values()}
    dims = {name: torch.export.Dim(name, min=1, max=LONGEST_DIM) for name in sorted(names)}
    shapes = tuple({axis: dims[n] for axis, n in axes.items()} for axes in network.dynamic)
    if not shapes:
        return None
    return (shapes,) if isinstance(network.module, Call) else shapes


def without_paths(path: Path) -> bytes:
    """The model less the stack traces that torch notes on nodes: they name local files."""
    import onnx

    model = onnx.load(path)
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    for node in (node for body in bodies for node in body):
        kept = [entry for entry in node.metadata_props if not entry.key.endswith("stack_trace")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _matches_torch(path: Path, network: Any) -> float:
    """The largest difference between ONNX Runtime and torch, relative to each output's size."""
    import onnxruntime
    import torch

    with torch.no_grad():
        expected = network.module(*network.example)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {name: t.numpy() for name, t in zip(network.inputs, network.example)}
    found = session.run(list(network.outputs), feeds)
    pairs = [(a, b.numpy()) for a, b in zip(found, expected)]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def export(name: str, folder: Path) -> Path:
    """Export the network called `name` to `folder/name.onnx`.

    Raises ZooError if there is no such network, or if the file does not compute what torch does.
    """
    import torch

    from benchmarks.torch_networks import NETWORKS

    if name not in NETWORKS:
        raise ZooError(f"There is no network '{name}' to export; choose {', '.join(NETWORKS)}.")
    torch.manual_seed(0)
    network = NETWORKS[name]()
    with tempfile.TemporaryDirectory(prefix="tilewright-export-") as scratch, torch.no_grad():
        path = Path(scratch) / f"{name}.onnx"
        torch.onnx.export(
            network.module,
            network.example,
            str(path),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(network.inputs),
            output_names=list(network.outputs),
            dynamic_shapes=_dynamic_shapes(network),
            external_data=False,
            verbose=False,
        )
        error = _matches_torch(path, network)
        if not error < 1e-3:
            raise ZooError(f"The export of '{name}' differs from torch by {error:.1e}.")
        write_whole(without_paths(path), folder / path.name)
    return folder / f"{name}.onnx"


def main(arguments: Sequence[str] | None = None) -> int:
    """Export the networks named; exit status 1 if one fails."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.export_torch", description="Export networks from PyTorch to ONNX."
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="every exported model of the zoo")
    parser.add_argument("--folder", type=Path, help="where to write (default: the zoo's cache)")
    options = parser.parse_args(arguments)
    exported = [m.name for m in load_table().models.values() if m.exported]
    names = exported if options.all else options.names
    if not names:
        parser.error(f"name a network, or say --all: {', '.join(exported)}.")
    warnings.simplefilter("ignore")
    failed = False
    for name in names:
        start = time.perf_counter()
        try:
            path = export(name, options.folder or cache_folder() / "exports")
        except (ZooError, ImportError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        size = path.stat().st_size / 1e6
        print(f"{path}  {size:.1f} MB  {time.perf_counter() - start:.0f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
