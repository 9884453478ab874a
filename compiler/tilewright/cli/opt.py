# SPDX-License-Identifier: Apache-2.0
"""``tilewright opt``: graph passes on the text of a module, one pipeline at a time."""

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.arguments import (
    ConstantDefaultsOption,
    Numerics,
    NumericsOption,
    UncheckedIndicesOption,
    check_no_artifact,
    check_writable,
    is_same_file,
)
from tilewright.cli.terminal import command, counted, note, say, say_table, wrong_usage

if TYPE_CHECKING:
    from tilewright.ir.graph import Module

EXAMPLES = """\b
Examples:
  tilewright opt x.ir -p canonicalize
  tilewright opt x.ir -p 'fold-constants{cap=64},fuse' --constants x.npz
  tilewright opt m.onnx -p '' -o m.ir --save-constants m.npz
  tilewright opt --list
"""

_HASH_CHARACTERS = 64  # of the name of a constant


@command
def run_passes_on_text(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE", help="A module's text (.ir; - for standard input), or a model file."
        ),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--passes",
            "-p",
            metavar="PASSES",
            help="As 'canonicalize,fold-constants{cap=64}'; else all of a compilation.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Else standard output."),
    ] = None,
    constants: Annotated[
        Path | None,
        typer.Option(
            "--constants", metavar="FILE", help="The .npz file with the text's constants."
        ),
    ] = None,
    save_constants: Annotated[
        Path | None,
        typer.Option(
            "--save-constants", metavar="FILE", help="Write those of the result to an .npz file."
        ),
    ] = None,
    target: Annotated[str, typer.Option("--target", metavar="TARGET")] = "native",
    numerics: NumericsOption = Numerics.default,
    unchecked_indices: UncheckedIndicesOption = False,
    constant_defaults: ConstantDefaultsOption = False,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check the module after each pass.")
    ] = True,
    time_passes: Annotated[
        bool, typer.Option("--time-passes", help="Show what each pass took, on standard error.")
    ] = False,
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes.")] = False,
) -> None:
    """Run graph passes on a module's text.

    The module that comes out is printed. A model file is imported first. Options of passes stand in
    braces behind their names.
    """
    from tilewright.files import replacing
    from tilewright.ir import constant_file
    from tilewright.ir.target import parse_target
    from tilewright.ir.verify_graph import verify_module
    from tilewright.passes.constant_defaults import with_constant_defaults
    from tilewright.passes.manager import (
        Instrument,
        PassContext,
        Time,
        Verify,
        parse_pipeline,
        run_passes,
    )
    from tilewright.pipeline import graph_passes

    if list_passes:
        _say_passes()
        return
    if source is None:
        wrong_usage("There is no SOURCE. Give a file, or '-' for standard input.")
    for path in filter(None, (output, save_constants)):
        check_writable(path, source, constants)
    if output and save_constants and is_same_file(output, save_constants):
        wrong_usage(f"Both outputs are '{output}'. Give --save-constants another file.")
    passes = graph_passes() if pipeline is None else parse_pipeline(pipeline)
    context = PassContext(parse_target(target), numerics.value, unchecked_indices=unchecked_indices)
    module = _read(source, constants, verify)
    if constant_defaults:
        module = with_constant_defaults(module)
    timer = Time()
    instruments: list[Instrument] = [timer]
    if verify:
        verify_module(module)
        instruments.append(Verify(verify_module))
    try:
        run_passes(module, passes, context, instruments)
    except KeyError as error:
        if len(str(error.args[0])) != _HASH_CHARACTERS:
            raise
        wrong_usage(
            f"A pass needs the constant '#{error.args[0]}'. Give the text's --constants FILE."
        )
    if output is None:
        say(str(module))
    else:
        with replacing(output) as stream:
            stream.write(f"{module}\n".encode())
    if save_constants is not None:
        constant_file.save_constants(save_constants, module.constants)
    if time_passes:
        for row in timer.rows:
            changed = "" if row.changed else " (unchanged)"
            note(f"{1e3 * row.seconds:9.2f} ms  {row.nodes:6} nodes  {row.name}{changed}")


def _read(source: Path, constants: Path | None, verify: bool) -> "Module":
    """The module of a text, with the constants of its side file; or of a model file."""
    from tilewright.errors import ParseError
    from tilewright.ir.constant_file import load_constants
    from tilewright.ir.graph import ConstantStore
    from tilewright.ir.graph_parser import parse_module

    if source.suffix == ".ir" or str(source) == "-":
        try:
            text = sys.stdin.read() if str(source) == "-" else source.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ParseError(f"'{source}' is no text in UTF-8: {error.reason}.") from error
        store = ConstantStore() if constants is None else load_constants(constants)
        module = parse_module(text, store)
        if verify:
            _check_constants(module)
        return module
    check_no_artifact(source)
    from tilewright.frontends import import_model

    if constants is not None:
        wrong_usage("A model file has its own constants: --constants is for texts.")
    return import_model(str(source))


def _check_constants(module: "Module") -> None:
    """Ends the command, with status 2, if values are missing that the verifier looks at."""
    from tilewright.ir.graph import Constant

    refs = [n.op.data for n in module.graph.walk() if isinstance(n.op, Constant)]
    missing = sum(ref not in module.constants for ref in refs)
    if missing:
        wrong_usage(
            f"The text has {counted(missing, 'constant')} without values. Give the text's "
            "--constants FILE, which --save-constants has written, or --no-verify."
        )


def _say_passes() -> None:
    from tilewright.passes.manager import registered_passes

    rows = []
    for name, cls in sorted(registered_passes().items()):
        options = ", ".join(
            f"{f.name.replace('_', '-')}={_option_text(f.default)}" for f in fields(cls)
        )
        rows.append((name, options, first_sentence(cls.__doc__ or "")))
    say_table(("pass", "options", "what it does"), rows)


def first_sentence(docstring: str) -> str:
    """The first sentence of a docstring on one line, without marks for code.

    >>> first_sentence("Folding; ``cap`` is the most\\n    bytes. More of it.")
    'Folding; cap is the most bytes.'
    """
    text = " ".join(docstring.replace("``", "").split())
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
