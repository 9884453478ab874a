# SPDX-License-Identifier: Apache-2.0
"""The folder that a compilation writes its IR to: a graph after each pass, kernels, host program.

The files of an earlier compilation are removed first, so that a folder holds one compilation; they
are told by their names, and nothing else in the folder is touched.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from tilewright.codegen.kernels import CompiledKernel
from tilewright.ir.loop import HostProgram
from tilewright.passes.lower.kernel import Lowered

_DUMPED = re.compile(r"(\d{2,}-[a-z][a-z0-9-]*|kernel-\d{3,}-k[0-9a-f]{16}|host)\.ir")


def clear_dump(folder: Path) -> None:
    """Remove the files of an earlier dump from a folder, if it is there."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if _DUMPED.fullmatch(path.name) and path.is_file():
            path.unlink()


def dump_kernels(
    folder: Path, lowered: list[Lowered], kernels: Mapping[str, CompiledKernel], host: HostProgram
) -> None:
    """Write each kernel's form and schedule, and the host program, beside the graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    for low in lowered:
        name = low.kernel.name
        if name in seen:
            continue
        seen.add(name)
        done = kernels[name]
        text = f"// {low.origin}\n{low.kernel}\n\n// schedule: {done.schedule}\n{done.text}\n"
        (folder / f"kernel-{len(seen):03d}-{name}.ir").write_text(text, encoding="utf-8")
    (folder / "host.ir").write_text(f"{host}\n", encoding="utf-8")
