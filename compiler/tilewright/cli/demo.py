# SPDX-License-Identifier: Apache-2.0
"""``tilewright demo``: the digit classifier that ships with the package, compiled and run."""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.arguments import JsonOption, QuietOption
from tilewright.cli.progress import progress_display
from tilewright.cli.terminal import command, fail, say, say_json

if TYPE_CHECKING:
    from tilewright.runtime.arrays import Array

EXAMPLES = """\b
Examples:
  tilewright demo
  tilewright demo --export .
"""

DATA = Path(__file__).parent.parent / "data"
_SHADES = " .:-=+*#%@"
_A_ROW = 5
_RUNS = 200


@command
def show_demo(
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="DIR",
            help="Only write the model and its images there: digits.onnx, images.npy, labels.npy.",
        ),
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compile and run a model that ships.

    It is a small convolutional net that reads handwritten digits.
    """
    import numpy as np

    with np.load(DATA / "digits_samples.npz", allow_pickle=False) as samples:
        images, labels = samples["images"], samples["labels"]
    if export is not None:
        _export(export, images, labels, json)
        return
    from tilewright.api import compile

    start = time.perf_counter()
    with progress_display(quiet) as progress:
        model = compile(DATA / "digits.onnx", progress=progress)
    compiled = time.perf_counter() - start
    read = model(images).argmax(axis=1)
    one = images[:1]
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        model(one)
        times.append(time.perf_counter() - start)
    facts: dict[str, Any] = {
        "labels": labels.tolist(),
        "read": read.tolist(),
        "right": int((read == labels).sum()),
        "kernels": len(model.manifest["kernels"]),
        "compile_seconds": compiled,
        "median_microseconds": 1e6 * float(np.median(times)),
    }
    if json:
        say_json(facts)
        return
    for first in range(0, min(len(images), 2 * _A_ROW), _A_ROW):
        say(pictures(images[first : first + _A_ROW, 0], read[first : first + _A_ROW].tolist()))
    say(
        f"{facts['right']} of {len(labels)} images read right. Compiled in {compiled:.2f} s to "
        f"{facts['kernels']} kernels; one image takes {facts['median_microseconds']:.0f} us."
    )


def pictures(images: "Array", labels: list[int]) -> str:
    """Images of values from 0 to 1 side by side, each with a label below."""
    steps = (images.clip(0, 1) * (len(_SHADES) - 1)).round().astype(int)
    lines = [
        "  ".join("".join(2 * _SHADES[s] for s in image[row]) for image in steps).rstrip()
        for row in range(images.shape[1])
    ]
    width = 2 * images.shape[2]
    lines.append("  ".join(f"this is a {label}".ljust(width) for label in labels).rstrip())
    return "\n".join(lines) + "\n"


def _export(folder: Path, images: "Array", labels: "Array", json: bool) -> None:
    import numpy as np

    if folder.exists() and not folder.is_dir():
        fail(f"'{folder}' is no folder. Give --export the name of one.")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(DATA / "digits.onnx", folder / "digits.onnx")
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    files = [str(folder / name) for name in ("digits.onnx", "images.npy", "labels.npy")]
    if json:
        say_json({"files": files})
    else:
        say("\n".join(files))
