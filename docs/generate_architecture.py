# SPDX-License-Identifier: Apache-2.0
"""Writes the blocks of IR in architecture.md anew, from the digit classifier that ships.

    python docs/generate_architecture.py

Each block of the page stands below a line ``<!-- generated: NAME -->``; the rest of the page is
written by hand. A test holds the page to what this script makes.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import tilewright
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.driver import CompileOptions, build
from tilewright.frontends import import_model
from tilewright.ir.graph import Module
from tilewright.ir.ops.group import Group
from tilewright.ir.target import Target, parse_target
from tilewright.passes.lower.kernel import Lowered, lower_group
from tilewright.passes.manager import Instrument, Pass, PassContext, run_passes
from tilewright.passes.schedule.schedule import schedule_text
from tilewright.passes.schedule.select import schedule_kernel
from tilewright.pipeline import graph_passes

PAGE = Path(__file__).with_name("architecture.md")
MODEL = Path(tilewright.__file__).parent / "data" / "digits.onnx"
TARGET = "x86-64-v3,cores=2"
FOLLOWED_LAYERS = r"layer6|layer7"  # the residual block, followed through the graph passes
FOLLOWED_KERNEL = "layer12.linear"  # the last layer, followed through the loop IR
WIDTH = 130
_BLOCK = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n```\w+\n)(?P<text>.*?)(```\n)", re.S)


class Keep(Instrument):
    """Keeps the text of a module after each pass."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def after(self, number: int, ran: Pass, module: Module, changed: bool, seconds: float) -> None:
        self.texts[ran.name] = str(module)


def excerpt(text: str, keep: Callable[[str], bool]) -> str:
    """The lines to keep; those between them become one line of dots."""
    result: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        if keep(line):
            result.append(cut(line))
        elif not result or result[-1].strip() != "...":
            result.append(f"{indent}...")
    return "\n".join(result)


def cut(line: str) -> str:
    """The line with short hashes, and not longer than the page is wide."""
    line = re.sub(r"#([0-9a-f]{8})[0-9a-f]{56}", r"#\1", line)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def whole(text: str) -> str:
    """All lines, cut."""
    return excerpt(text, lambda line: True)


def followed(text: str) -> str:
    """The lines of a module's text that belong to the block that the page follows."""
    frame = r"^module|^  symbol|^  graph @main|^    return|^  \}|^\}"
    lines = re.compile(rf'{frame}|"[^"]*({FOLLOWED_LAYERS})[^"]*"')
    depth = 0  # of the sub-graphs of a node that is kept

    def keep(line: str) -> bool:
        nonlocal depth
        inside = depth > 0
        kept = inside or lines.search(line) is not None
        if kept and (inside or line.startswith("    %")):
            depth += line.endswith("{") - (line.strip() == "}")
        return kept

    return excerpt(text, keep)


def llvm_lines(text: str) -> str:
    """The head of a kernel's function, and the first lines of its innermost loop."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("define"))
    sums = re.compile(r"= (fadd|.*@llvm\.fma).* <\d+ x float>")
    first = next(i for i, line in enumerate(lines) if sums.search(line))
    start = max(i for i in range(first) if re.match(r"[\w.]+:", lines[i]))
    shown = [lines[head], "  ...", *lines[start : first + 12], "  ..."]
    return "\n".join(map(cut, shown))


def manifest_lines(target: Target) -> str:
    """Parts of the manifest that the artifact gets."""
    manifest = build(MODEL, target, options=CompileOptions(cache=False)).manifest
    facts = json.loads(manifest.to_json([]))
    shown = {name: facts[name] for name in ("inputs", "outputs", "symbols", "numerics")}
    shown["target"] = {name: facts["target"][name] for name in ("arch", "triple", "cores")}
    shown["messages"] = facts["messages"][:2]
    shown["kernels"] = facts["kernels"][:2]
    return "\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in shown.items())


def find_kernel(module: Module) -> Lowered:
    """The group that the page follows, lowered."""
    for node in module.graph.nodes:
        if isinstance(node.op, Group) and node.origin == FOLLOWED_KERNEL:
            return lower_group(node, module.constants)
    raise LookupError(f"No group comes from '{FOLLOWED_KERNEL}'.")


def host_lines(folder: Path) -> str:
    """The host program, without the checks of all dims but one."""
    text = (folder / "host.ir").read_text(encoding="utf-8")
    checks = re.compile(
        r"require .*shape\[[1-9]\]|  constant (?!layer0)|launch @k(?!.*layer(0|12))"
    )
    places = re.compile(r"    place (?!layer2_|layer12)")
    return excerpt(text, lambda line: not checks.search(line) and not places.match(line))


def blocks(folder: Path) -> dict[str, str]:
    """All generated blocks by name; ``folder`` is for what the compiler dumps."""
    target = parse_target(TARGET)
    module = import_model(str(MODEL))
    imported = str(module)
    kept = Keep()
    run_passes(module, graph_passes(), PassContext(target), [kept])
    lowered = find_kernel(module)
    scheduled = schedule_kernel(lowered.kernel, target)
    build(MODEL, target, options=CompileOptions(dump_ir=folder, cache=False))
    steps = schedule_text(scheduled.schedule).replace("; ", "\n")
    return {
        "passes": "\n".join(p.name for p in graph_passes()),
        "imported": followed(imported),
        "batch-norm-folded": followed(kept.texts["fold-batch-norm"]),
        "layout": followed(kept.texts["assign-layout"]),
        "fused": followed(kept.texts["fuse"]),
        "lowered": whole(str(lowered.kernel)),
        "schedule": whole(steps),
        "scheduled": whole(str(scheduled.kernel).partition("    for add_i0_t")[0]) + "\n    ...",
        "llvm": llvm_lines(emit_kernel(scheduled.kernel, target)),
        "host": host_lines(folder),
        "manifest": whole(manifest_lines(target)),
    }


def render(page: str, found: dict[str, str]) -> str:
    """The page with its blocks made anew; LookupError for a block that there is not."""
    named = [match["name"] for match in _BLOCK.finditer(page)]
    if sorted(named) != sorted(found):
        raise LookupError(f"The page has the blocks {named}, but there are {list(found)}.")
    return _BLOCK.sub(lambda m: f"{m[1]}{found[m['name']]}\n{m[4]}", page)


def main() -> None:
    """Write the page."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        page = render(PAGE.read_text(encoding="utf-8"), blocks(Path(folder)))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
