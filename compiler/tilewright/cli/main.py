# SPDX-License-Identifier: Apache-2.0
"""The command ``tilewright``: options that come before the command, and the list of commands."""

import os
import signal
import sys
from enum import StrEnum
from types import FrameType
from typing import Annotated, NoReturn

import typer
from typer.completion import completion_init, show_callback  # type: ignore[attr-defined]

from tilewright.cli import compile as compile_command
from tilewright.cli import demo, inspect, opt, records, tune
from tilewright.cli import run as run_command
from tilewright.cli.arguments import DEBUG_HELP
from tilewright.cli.terminal import (
    Terminated,
    command,
    settings,
    start_debugging,
    start_logging,
)
from tilewright.cli.usage import Commands, PlainCommand
from tilewright.version import VERSION, llvm_version, package_version

EXAMPLES = """\b
Examples:
  tilewright demo
  tilewright compile model.onnx -o model.tw
  tilewright run model.tw --input x=x.npy --output results/
  tilewright tune model.onnx --trials 200
  tilewright inspect model.tw
"""

app = typer.Typer(
    name="tilewright",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,  # typer's writes into the shell's start files; ours only shows the script
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXAMPLES,
)


class LogLevel(StrEnum):
    """How much of the log is shown."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Shell(StrEnum):
    """The shells that have completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    powershell = "powershell"


@command
def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(
            f"tilewright {VERSION}\n"
            f"LLVM {llvm_version()} (llvmlite {package_version('llvmlite')})\n"
            f"onnx {package_version('onnx')}\n"
            f"numpy {package_version('numpy')}\n"
            f"Python {sys.version.split()[0]}"
        )
        raise typer.Exit


def _show_completion(
    context: typer.Context, parameter: typer.CallbackParam, shell: Shell | None
) -> None:
    if shell is not None:
        show_callback(context, parameter, shell.value)


@app.callback()
def before(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show versions and end."
        ),
    ] = False,
    show_completion: Annotated[
        Shell | None,
        typer.Option(
            "--show-completion",
            callback=_show_completion,
            is_eager=True,
            help="Print the script that completes commands in a shell, for you to install.",
        ),
    ] = None,
    log: Annotated[
        LogLevel, typer.Option("--log", envvar="TILEWRIGHT_LOG", help="What to log.")
    ] = LogLevel.warning,
    debug: Annotated[bool, typer.Option("--debug", help=DEBUG_HELP)] = False,
) -> None:
    """Tilewright compiles deep-learning models to fast native code, and runs them."""
    settings.debug = False
    start_logging(log.value)
    if debug:
        start_debugging()


app.command("compile", cls=PlainCommand, epilog=compile_command.EXAMPLES)(
    compile_command.compile_model
)
app.command("run", cls=PlainCommand, epilog=run_command.EXAMPLES)(run_command.run_model)
app.command("inspect", cls=PlainCommand, epilog=inspect.EXAMPLES)(inspect.inspect_model)
app.command("opt", cls=PlainCommand, epilog=opt.EXAMPLES)(opt.run_passes_on_text)
app.command("tune", cls=PlainCommand, epilog=tune.EXAMPLES)(tune.tune_model)
app.command("records", cls=PlainCommand, epilog=records.EXAMPLES)(records.show_records)
app.command("demo", cls=PlainCommand, epilog=demo.EXAMPLES)(demo.show_demo)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def run() -> None:
    """Reads the command line, and runs what it says."""
    signal.signal(signal.SIGTERM, _terminate)
    completion_init()  # with add_completion off, typer knows no shell's way of asking
    try:
        app(prog_name="tilewright")
    except Terminated:
        sys.exit(128 + signal.SIGTERM)
    except BrokenPipeError:
        # The reader has gone; nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
