# SPDX-License-Identifier: Apache-2.0
"""The folder that a compilation writes its IR to: a graph after each pass, kernels, host program.

The files of an earlier compilation are removed first, so that a folder holds one compilation; they
are told by their names, and nothing else in the folder is touched.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.codegen.kernels import CompiledKernel
from tilewright.ir.loop import HostProgram
from tilewright.passes.lower.kernel import Lowered

DEFAULTS = "defaults"
"""The folder in it for the program that replaces no default of an input: its graphs and host
program; the kernels are with the others.
"""
_DUMPED = re.compile(r"(\d{2,}-[a-z][a-z0-9-]*|kernel-\d{3,}-k[0-9a-f]{16}|host)\.ir")


def clear_dump(folder: Path) -> None:
    """Remove the files of an earlier dump from a folder, if it is there."""
    if not folder.is_dir():
        return
    if folder.name != DEFAULTS:
        clear_dump(folder / DEFAULTS)
    for path in folder.iterdir():
        if _DUMPED.fullmatch(path.name) and path.is_file():
            path.unlink()


def dump_kernels(
    folder: Path, lowered: Sequence[Lowered], kernels: Mapping[str, CompiledKernel] | None = None
) -> None:
    """Write each kernel's form beside the graphs, with its schedule once there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    forms: dict[str, Lowered] = {}
    for low in lowered:
        forms.setdefault(low.kernel.name, low)
    for number, (name, low) in enumerate(forms.items(), 1):
        text = f"// {low.origin}\n{low.kernel}\n"
        if kernels is not None:
            text += f"\n// schedule: {kernels[name].schedule}\n{kernels[name].text}\n"
        (folder / f"kernel-{number:03d}-{name}.ir").write_text(text, encoding="utf-8")


def dump_host(folder: Path, host: HostProgram) -> None:
    """Write the host program beside the kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "host.ir").write_text(f"{host}\n", encoding="utf-8")
