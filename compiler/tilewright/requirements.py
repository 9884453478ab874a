# SPDX-License-Identifier: Apache-2.0
"""What to say where a package is missing that the compiler or the command line needs.

Running saved models needs numpy alone, so an installation may lack the others on purpose.
"""

from collections.abc import Iterator
from contextlib import contextmanager


def explain_missing(error: ModuleNotFoundError) -> str | None:
    """One sentence for a package that is not installed; None if the module missing is ours."""
    package = (error.name or "").partition(".")[0]
    if not package or package == "tilewright":
        return None
    return (
        f"This needs the Python package '{package}', which is not installed: only running saved "
        "models works with numpy alone. Install Tilewright with its dependencies, 'pip install .'."
    )


@contextmanager
def packages_for(name: str) -> Iterator[None]:
    """Imports inside are for ``name``: a package that is missing is an ImportError of one
    sentence.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = explain_missing(error)
        if sentence is None:
            raise
        raise ImportError(f"'{name}': {sentence}", name=error.name) from None
