# SPDX-License-Identifier: Apache-2.0
"""``tilewright compile``: a model file in, an artifact out."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.arguments import (
    CacheDirOption,
    ConstantDefaultsOption,
    DebugOption,
    JsonOption,
    NoCacheOption,
    Numerics,
    NumericsOption,
    RecordsOption,
    ShapeOption,
    UncheckedIndicesOption,
    check_no_artifact,
    check_no_input,
    check_writable,
    parse_shapes,
)
from tilewright.cli.progress import progress_display
from tilewright.cli.slow_kernels import say_slow_kernels
from tilewright.cli.terminal import (
    command,
    counted,
    fail,
    port_text,
    say,
    say_json,
    say_table,
    settings,
    size_text,
)

if TYPE_CHECKING:
    from tilewright.driver import Build, Report
    from tilewright.model_cache import Request

_logger = logging.getLogger("tilewright")

EXAMPLES = """\b
Examples:
  tilewright compile model.onnx
  tilewright compile model.onnx -o model.tw --target x86-64-v3
  tilewright compile model.onnx --shape x=1,3,224,224 --time-passes
  tilewright compile model.onnx --target aarch64+dotprod,cores=4 --dump-ir ir/
"""


@command
def compile_model(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The artifact; else MODEL's name.tw."),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="'native', or ARCH-LEVEL+FEATURE...,cores=N such as 'x86-64-v3'.",
        ),
    ] = "native",
    shape: ShapeOption = None,
    numerics: NumericsOption = Numerics.default,
    unchecked_indices: UncheckedIndicesOption = False,
    constant_defaults: ConstantDefaultsOption = False,
    disable: Annotated[
        list[str] | None,
        typer.Option("--disable", metavar="PASS", help="Leave a graph pass out. Repeatable."),
    ] = None,
    dump_ir: Annotated[
        Path | None,
        typer.Option(
            "--dump-ir",
            metavar="DIR",
            help="Write the IR after each pass there; it replaces an earlier dump.",
        ),
    ] = None,
    time_passes: Annotated[
        bool, typer.Option("--time-passes", help="Show what each phase and pass took.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the IR after each pass.")] = False,
    no_tuned: Annotated[
        bool, typer.Option("--no-tuned", help="Use no schedules that 'tune' has found.")
    ] = False,
    records: RecordsOption = None,
    no_cache: NoCacheOption = False,
    cache_dir: CacheDirOption = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show neither progress nor the summary.")
    ] = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Compile a model to an artifact (.tw).

    An artifact runs without the compiler, from Python and from C. Symbolic dims stay symbolic: one
    artifact serves all their sizes.
    """
    from tilewright.target_choice import choose_target, warn_of_generic

    path = output or Path(model.with_suffix(".tw").name)
    check_no_artifact(model)
    shapes = parse_shapes(shape)
    check_writable(path, model, records)
    check_no_input(records, model)
    start = time.perf_counter()
    plain = not (no_cache or dump_ir or time_passes or verify or json or settings.debug)
    facts = {
        "numerics": numerics.value,
        "disable": ",".join(sorted(disable or ())),
        "tuned": str(not no_tuned),
        "unchecked_indices": str(unchecked_indices),
        "constant_defaults": str(constant_defaults),
    }
    request = _request(model, target, shapes, facts, cache_dir, records) if plain else None
    if request is not None and _fetch(request, model, path):
        warn_of_generic(target)
        if not quiet:
            _say_summary(path, time.perf_counter() - start)
        return
    from tilewright.driver import CompileOptions, build

    options = CompileOptions(
        numerics=numerics.value,
        disabled=frozenset(disable or ()),
        verify=verify,
        dump_ir=dump_ir,
        cache=not no_cache,
        cache_dir=cache_dir,
        tuned=not no_tuned,
        records=records,
        unchecked_indices=unchecked_indices,
        constant_defaults=constant_defaults,
    )
    chosen = choose_target(target)
    with progress_display(quiet) as progress:
        built = build(str(model), chosen, shapes, options, progress)
        check_no_input(path, *(model.parent / name for name in built.report.files))
        try:
            built.save(path)
        except OSError as error:
            fail(f"File '{path}' cannot be written: {error.strerror}.")
    if request is not None:
        request.keep(path, built.report.files)
    seconds = time.perf_counter() - start
    if json:
        say_json(_as_json(built, path, seconds))
        return
    if not quiet:
        _say_summary(path, seconds)
    if time_passes:
        _say_times(built.report)


def _request(
    model: Path,
    target: str,
    shapes: Mapping[str, Sequence[int | str]] | None,
    facts: Mapping[str, str],
    cache_dir: Path | None,
    records: Path | None,
) -> "Request | None":
    """The place of this compilation in the cache of whole artifacts; nothing heavy is imported."""
    from tilewright.autotune.records import default_path
    from tilewright.model_cache import ModelCache

    return ModelCache(cache_dir).request(model, target, shapes, facts, records or default_path())


def _fetch(request: "Request", model: Path, output: Path) -> bool:
    """Write the artifact if it is kept, and tell its warnings again; the command ends if it cannot
    be written.
    """
    from tilewright.kernel_report import log_warnings, noted_warnings

    check_no_input(output, *(model.parent / name for name in request.files()))
    try:
        manifest = request.fetch(output)
    except OSError as error:
        fail(f"File '{output}' cannot be written: {error.strerror}.")
    if manifest is None:
        _logger.info("The artifact is not in the cache of whole models.")
        return False
    _logger.info("The artifact is in the cache: nothing is compiled.")
    log_warnings(noted_warnings(manifest))
    return True


def _kernels_text(rows: Sequence[Mapping[str, str]]) -> str:
    forms = {row["name"] for row in rows}
    return f"{counted(len(rows), 'kernel')} of {counted(len(forms), 'form')}"


def _say_summary(path: Path, seconds: float) -> None:
    from tilewright.kernel_report import split_launches
    from tilewright.runtime.artifact import read_manifest

    if not path.is_file():  # a pipe or a device is not read back
        say(f"Wrote '{path}' in {seconds:.2f} s.")
        return
    manifest = read_manifest(path)
    usual, others = split_launches(manifest)
    size = size_text(path.stat().st_size)
    say(f"Wrote '{path}': {size}, {_kernels_text(usual)}, in {seconds:.2f} s.")
    if others:
        say(f"  calls that replace a default run {_kernels_text(others)}")
    for word in ("input", "output"):
        for port in manifest[f"{word}s"]:
            say(f"  {word:6}  {port['name']}: {port_text(port['dtype'], port['shape'])}")


def _say_times(report: "Report") -> None:
    total = sum(seconds for _, seconds in report.phases) or 1.0
    say("")
    say_table(
        ("phase", "ms", "%"),
        [(n, f"{1e3 * s:.1f}", f"{100 * s / total:.0f}") for n, s in report.phases],
        right="ms,%",
    )
    say("")
    say_table(
        ("pass", "ms", "nodes", "changed"),
        [
            (row.name, f"{1e3 * row.seconds:.1f}", str(row.nodes), "yes" if row.changed else "no")
            for row in report.passes
        ],
        right="ms,nodes",
    )
    say("")
    say_table(
        ("kernel", "launches", "proof ms", "cached", "schedule", "origin"),
        [
            (
                k.name,
                str(k.launches),
                f"{k.proof_ms:.1f}",
                "yes" if k.cached else "no",
                k.template,
                k.origin,
            )
            for k in report.kernels
        ],
        right="launches,proof ms",
    )
    say_slow_kernels(report.warnings)


def _as_json(built: "Build", path: Path, seconds: float) -> dict[str, Any]:
    manifest, report = built.manifest, built.report

    def ports(rows: Any) -> list[dict[str, Any]]:
        return [{"name": p.name, "dtype": p.dtype, "shape": list(p.shape)} for p in rows]

    return {
        "output": str(path),
        "bytes": path.stat().st_size,
        "seconds": seconds,
        "target": {
            "arch": manifest.target.arch,
            "features": list(manifest.target.features),
            "cores": manifest.target.cores,
        },
        "numerics": manifest.numerics,
        "unchecked_indices": manifest.unchecked_indices,
        "inputs": [
            row | ({} if p.default is None else {"default": {"shape": list(p.default.shape)}})
            for row, p in zip(ports(manifest.inputs), manifest.inputs, strict=True)
        ],
        "outputs": ports(manifest.outputs),
        "phases": [{"name": name, "seconds": took} for name, took in report.phases],
        "passes": [
            {"name": p.name, "seconds": p.seconds, "changed": p.changed, "nodes": p.nodes}
            for p in report.passes
        ],
        "kernels": [
            {
                "name": k.name,
                "launches": k.launches,
                "template": k.template,
                "schedule": k.schedule,
                "proof_ms": k.proof_ms,
                "cached": k.cached,
                "origin": k.origin,
                "refused": [asdict(refusal) for refusal in k.refused],
            }
            for k in report.kernels
        ],
        "warnings": [asdict(warning) for warning in report.warnings],
    }
