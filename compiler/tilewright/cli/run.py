# SPDX-License-Identifier: Apache-2.0
"""``tilewright run``: a model with inputs from files, or with random ones."""

import logging
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tilewright.cli.arguments import (
    CacheDirOption,
    ConstantDefaultsOption,
    DebugOption,
    JsonOption,
    NoCacheOption,
    Numerics,
    NumericsOption,
    QuietOption,
    ShapeOption,
    SizeOption,
    ThreadsOption,
    UncheckedIndicesOption,
    parse_shapes,
    parse_sizes,
    read_inputs,
)
from tilewright.cli.progress import progress_display
from tilewright.cli.terminal import (
    command,
    counted,
    fail,
    port_text,
    say,
    say_json,
    say_table,
    sizes_text,
    wrong_usage,
)

if TYPE_CHECKING:
    from tilewright.model import CompiledModel
    from tilewright.runtime.arrays import Array

_logger = logging.getLogger("tilewright")

EXAMPLES = """\b
Examples:
  tilewright run model.tw --input x=x.npy --output results/
  tilewright run model.onnx --random --size batch=4 --repeat 100
  tilewright run model.tw --random --threads 2 --profile
  tilewright run model.tw --input inputs.npz --json
"""

_SHOWN_ELEMENTS = 10
_JSON_ELEMENTS = 100


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its median time over ``runs`` profiled runs."""

    name: str
    origin: str
    tasks: int
    microseconds: float
    runs: int


@command
def run_model(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An artifact (.tw), or a model to compile.")
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="NAME=FILE",
            help="An input from an .npy file, or several from an .npz file. Repeatable.",
        ),
    ] = None,
    random: Annotated[
        bool,
        typer.Option(
            "--random",
            help="Fill the other inputs: normal floats, integers 0 or 1. --size chooses "
            "symbolic dims.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of the random inputs.")
    ] = 0,
    size: SizeOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write outputs there as .npy files."),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option("--repeat", metavar="N", min=0, help="Run N times more and show the times."),
    ] = 0,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show each launch's time, the median of N runs.")
    ] = False,
    threads: ThreadsOption = None,
    shape: ShapeOption = None,
    numerics: NumericsOption = Numerics.default,
    unchecked_indices: UncheckedIndicesOption = False,
    constant_defaults: ConstantDefaultsOption = False,
    no_cache: NoCacheOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a model, or time it.

    The options --shape, --numerics, --unchecked-indices, --constant-defaults and --no-cache are for
    models that are compiled first.
    """
    shapes, sizes = parse_shapes(shape), parse_sizes(size)
    if sizes and not random:
        wrong_usage("Sizes are for inputs that --random makes. Give --random, or no --size.")
    feeds = read_inputs(input)
    if model.suffix == ".tw":
        if shapes:
            _refuse_shapes(model)
        from tilewright.model import load

        compiled = load(model, threads)
    else:
        from tilewright.api import CompileOptions, compile

        options = CompileOptions(
            numerics.value,
            cache=not no_cache,
            cache_dir=cache_dir,
            unchecked_indices=unchecked_indices,
            constant_defaults=constant_defaults,
        )
        with progress_display(quiet) as progress:
            compiled = compile(
                model, shapes=shapes, options=options, threads=threads, progress=progress
            )
    taken = _complete(compiled, feeds, sizes, random, seed)
    outputs = compiled.run(feeds)
    times = _measure(compiled, feeds, repeat)
    launches = _profile(compiled, feeds, max(1, repeat)) if profile else []
    files = _write(outputs, output) if output is not None else {}
    if json:
        say_json(_as_json(outputs, files, times, launches) | ({"sizes": taken} if taken else {}))
    else:
        if taken:
            say(f"random inputs of {sizes_text(taken)}")
        _say(outputs, files, times, launches)


def _refuse_shapes(artifact: Path) -> NoReturn:
    """Ends the command, with status 2, for shapes that are given to an artifact."""
    from tilewright.runtime.artifact import read_manifest

    names = [row["name"] for row in read_manifest(artifact)["symbols"]]
    sizes = " ".join(f"--size {name}=1" for name in names)
    wrong_usage(
        "An artifact's shapes are fixed: give --shape to 'tilewright compile'."
        + (f" The symbolic dims of random inputs are set as {sizes}." if sizes else "")
    )


def _complete(
    model: "CompiledModel",
    feeds: "dict[str, Array]",
    sizes: dict[str, int],
    random: bool,
    seed: int,
) -> dict[str, int]:
    """Adds random arrays for the inputs that are not given; the sizes taken for symbolic dims."""
    from tilewright.runtime.context import check_known
    from tilewright.runtime.errors import InputError

    try:
        check_known(feeds, [port.name for port in model.inputs])
    except InputError as error:
        wrong_usage(str(error))
    missing = [port for port in model.inputs if not (port.optional or port.name in feeds)]
    if not missing:
        if sizes:
            wrong_usage(
                "Sizes are for inputs that --random makes, but all are given. Give no --size."
            )
        return {}
    if not random:
        listed = ", ".join(f"'{port.name}'" for port in missing)
        wrong_usage(f"There is no array for {listed}. Give --input NAME=FILE, or --random.")
    from tilewright.cli.random_inputs import random_inputs, random_sizes

    taken = random_sizes(model, feeds, sizes)
    feeds.update(random_inputs(model, feeds, taken, seed))
    _warn_of_guesses({name: taken.values[name] for name in taken.guessed})
    return taken.values


def _warn_of_guesses(sizes: dict[str, int]) -> None:
    """Tells of sizes that nobody asked for: a time or a value at them is seldom what is wanted."""
    if sizes:
        options = " ".join(f"--size {name}=N" for name in sizes)
        _logger.warning(
            "No size is given for %s: %s taken, the least that the model allows. What is measured "
            "at it is seldom what is wanted; choose with %s.",
            ", ".join(f"'{name}'" for name in sizes),
            sizes_text(sizes) + (" is" if len(sizes) == 1 else " are"),
            options,
        )


def _measure(model: "CompiledModel", feeds: "dict[str, Array]", repeat: int) -> list[float]:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        model.run(feeds)
        times.append(time.perf_counter() - start)
    return times


def _profile(model: "CompiledModel", feeds: "dict[str, Array]", runs: int) -> list[Launch]:
    """The launches of a model that has run before; every run of it makes the same ones."""
    found = [model.run_profiled(feeds)[1] for _ in range(runs)]
    return [
        Launch(
            same[0].name,
            same[0].origin,
            same[0].tasks,
            statistics.median((k.end_ns - k.begin_ns) / 1e3 for k in same),
            runs,
        )
        for same in zip(*found, strict=True)
    ]


def file_names(names: list[str]) -> dict[str, str]:
    """A file name for each output: what names from a model hold never leaves the folder.

    >>> file_names(["y", "a/b", "a:b", "../../etc/passwd"])
    {'y': 'y.npy', 'a/b': 'a_b.npy', 'a:b': 'a_b_1.npy', '../../etc/passwd': 'etc_passwd.npy'}
    """
    result: dict[str, str] = {}
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100].lstrip("._-") or "output"
        unused, number = stem, 0
        while f"{unused}.npy" in result.values():
            number += 1
            unused = f"{stem}_{number}"
        result[name] = f"{unused}.npy"
    return result


def _write(outputs: "dict[str, Array]", folder: Path) -> dict[str, Path]:
    import numpy as np

    from tilewright.files import replacing

    if folder.exists() and not folder.is_dir():
        fail(f"'{folder}' is no folder. Give --output the name of one.")
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / file for name, file in file_names(list(outputs)).items()}
    for name, path in files.items():
        with replacing(path) as stream:
            np.save(stream, outputs[name], allow_pickle=False)
    return files


def _statistics(array: "Array") -> dict[str, float]:
    """Least, largest and mean value; none for complex or empty arrays."""
    if not array.size or array.dtype.kind == "c":
        return {}
    values = array.astype("float64")
    return {"min": values.min(), "max": values.max(), "mean": values.mean()}


def _time_figures(times: list[float]) -> dict[str, float]:
    scaled = [1e3 * t for t in times]
    return {
        "median_ms": statistics.median(scaled),
        "min_ms": min(scaled),
        "max_ms": max(scaled),
        "mean_ms": statistics.fmean(scaled),
    }


def _say(
    outputs: "dict[str, Array]",
    files: dict[str, Path],
    times: list[float],
    launches: list[Launch],
) -> None:
    for name, array in outputs.items():
        say(f"{name}: {port_text(str(array.dtype), array.shape)}")
        if 0 < array.size <= _SHOWN_ELEMENTS:
            say(f"  {values_text(array)}")
        elif found := _statistics(array):
            say("  " + ", ".join(f"{word} {value:.6g}" for word, value in found.items()))
        if name in files:
            say(f"  written to '{files[name]}'")
    if times:
        figures = _time_figures(times)
        shown = ", ".join(f"{k.removesuffix('_ms')} {v:.4g} ms" for k, v in figures.items())
        say(f"{counted(len(times), 'run')}: {shown}")
    if launches:
        _say_launches(launches)


def _say_launches(launches: list[Launch]) -> None:
    total = sum(launch.microseconds for launch in launches) or 1.0
    runs = launches[0].runs
    say(
        f"{counted(len(launches), 'launch takes', 'launches take')} {1e-3 * total:.4g} ms: "
        + (f"medians of {runs} profiled runs" if runs > 1 else "one profiled run")
    )
    rows = [
        (
            f"{launch.microseconds:.1f}",
            f"{100 * launch.microseconds / total:.1f}",
            str(launch.tasks),
            launch.name,
            launch.origin,
        )
        for launch in launches
    ]
    say_table(("us", "%", "tasks", "kernel", "origin"), rows, right="us,%,tasks")


def values_text(array: "Array") -> str:
    """All values of an array on one line, each with the digits that its dtype has.

    >>> import numpy as np
    >>> values_text(np.float32([[0.1, 1.0]]))
    '[[0.1, 1.0]]'
    """
    if not array.ndim:
        return str(array[()])
    return f"[{', '.join(map(values_text, array))}]"


def _number(value: Any) -> Any:
    """A value that JSON can hold; infinities, NaN and complex numbers become texts."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and value - value == 0.0:
        return value
    return str(value)


def _as_json(
    outputs: "dict[str, Array]",
    files: dict[str, Path],
    times: list[float],
    launches: list[Launch],
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, array in outputs.items():
        row: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
        row |= {word: _number(float(value)) for word, value in _statistics(array).items()}
        if array.size <= _JSON_ELEMENTS:
            row["values"] = [_number(v) for v in array.reshape(-1).tolist()]
        if name in files:
            row["file"] = str(files[name])
        rows[name] = row
    result: dict[str, Any] = {"outputs": rows}
    if times:
        result["times"] = {"runs": len(times), **_time_figures(times)}
    if launches:
        result["profiled_runs"] = launches[0].runs
        result["kernels"] = [
            {
                "name": launch.name,
                "origin": launch.origin,
                "microseconds": launch.microseconds,
                "tasks": launch.tasks,
            }
            for launch in launches
        ]
    return result
