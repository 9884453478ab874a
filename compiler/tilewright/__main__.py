# SPDX-License-Identifier: Apache-2.0
"""The command ``tilewright``, which ``python -m tilewright`` is too.

It loads the command line when it runs, so that Ctrl-C ends it quietly from the first moment on, and
a package that is missing is told in one sentence.
"""

import os
import signal
import sys

from tilewright.requirements import explain_missing

INTERRUPTED = 130


def _open_standard_streams() -> None:
    """Let standard streams that are closed lead nowhere: they are there to write to, and no file
    that is opened later gets their numbers.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 (as long as we run)
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def run() -> None:
    """The entry point of the command."""
    _open_standard_streams()
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:  # an exception would get lost in what imports call back
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    try:
        from tilewright.cli.main import run as run_command
    except ModuleNotFoundError as error:
        sentence = explain_missing(error)
        if sentence is None:
            raise
        sys.exit(f"Error: {sentence}")
    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run_command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    run()
