# SPDX-License-Identifier: Apache-2.0
"""``tilewright inspect``: what an artifact or a model file holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.arguments import JsonOption, ShapeOption, parse_shapes
from tilewright.cli.slow_kernels import say_slow_kernels
from tilewright.cli.terminal import (
    command,
    counted,
    port_text,
    say,
    say_json,
    say_table,
    size_text,
    wrong_usage,
)

if TYPE_CHECKING:
    import onnx

    from tilewright.frontends.base import Shapes

EXAMPLES = """\b
Examples:
  tilewright inspect model.tw
  tilewright inspect model.onnx
  tilewright inspect model.onnx --shape x=n,16
  tilewright inspect model.tw --json
"""


@command
def inspect_model(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An artifact (.tw) or an ONNX file.")
    ],
    shape: ShapeOption = None,
    json: JsonOption = False,
) -> None:
    """Show what an artifact or a model holds.

    For a model that is also which of its operators are not supported. The option --shape is for
    models whose inputs have no shape, or should have another.
    """
    shapes = parse_shapes(shape)
    if model.suffix == ".tw":
        if shapes:
            wrong_usage(
                "An artifact's shapes are fixed: --shape is for models. Inspect it without."
            )
        facts = artifact_facts(model)
        show = _say_artifact
    else:
        facts = model_facts(model, shapes)
        show = _say_model
    if json:
        say_json(facts)
    else:
        show(facts)


# --- artifacts ---


def artifact_facts(path: Path) -> dict[str, Any]:
    """What an artifact says about itself; also for one that this machine cannot run."""
    from tilewright import runtime
    from tilewright.errors import TargetMismatchError
    from tilewright.kernel_report import noted_warnings, split_launches
    from tilewright.runtime.artifact import HEADER_BYTES, parse_header, read_manifest

    manifest = read_manifest(path)
    with open(path, "rb") as file:
        header = parse_header(file.read(HEADER_BYTES))
    try:
        runtime.load(path)
        refusal = None
    except TargetMismatchError as error:
        refusal = str(error)
    usual, others = map(_forms, split_launches(manifest))
    return {
        "kind": "artifact",
        "file": str(path),
        "bytes": {
            "file": header.file_bytes,
            "constants": header.constants.bytes,
            "code": header.code.bytes,
            "manifest": header.manifest.bytes,
        },
        "tool": manifest["tool"],
        "target": manifest["target"],
        "runs_here": refusal is None,
        "refusal": refusal,
        "numerics": manifest["numerics"],
        "unchecked_indices": manifest.get("unchecked_indices", False),
        "inputs": manifest["inputs"],
        "outputs": manifest["outputs"],
        "symbols": manifest["symbols"],
        "constants": len(manifest["constants"]),
        "kernels": usual,
        **({"replaced_kernels": others} if others else {}),
        "warnings": [asdict(warning) for warning in noted_warnings(manifest)],
        "notes": manifest["notes"],
    }


def _forms(rows: "Sequence[Mapping[str, str]]") -> list[dict[str, Any]]:
    """The forms of kernel among some launches, with the origin of the first launch of each."""
    launches = Counter(row["name"] for row in rows)
    first = {row["name"]: row["origin"] for row in reversed(rows)}
    return [
        {"name": name, "launches": count, "origin": first[name]} for name, count in launches.items()
    ]


def _say_artifact(facts: dict[str, Any]) -> None:
    from tilewright.kernel_report import KernelWarning

    target = facts["target"]
    sizes = {name: size_text(count) for name, count in facts["bytes"].items()}
    say(f"artifact  {facts['file']}, {sizes['file']}, by {facts['tool']}")
    say(f"target    {target['arch']}, schedules for {counted(target['cores'], 'core')}")
    say(f"features  {' '.join(target['features']) or 'none beyond the base'}")
    say(f"runs here {'yes' if facts['runs_here'] else 'no: ' + facts['refusal']}")
    say(f"numerics  {facts['numerics']}")
    say(f"indices   {'clamped' if facts['unchecked_indices'] else 'checked'}")
    say(f"constants {facts['constants']}, {sizes['constants']}")
    say(f"code      {sizes['code']}")
    _say_ports(facts)
    for row in facts["symbols"]:
        upper = "" if row["hi"] is None else f" to {row['hi']}"
        multiple = f", a multiple of {row['multiple']}" if row["multiple"] != 1 else ""
        say(f"symbol    {row['name']}: from {row['lo']}{upper}{multiple}")
    others = facts.get("replaced_kernels", [])
    for forms, note in ((facts["kernels"], ""), (others, " in calls that replace a default")):
        if forms or not note:
            launches = counted(sum(row["launches"] for row in forms), "launch", "launches")
            say(f"kernels   {launches} of {counted(len(forms), 'form')}{note}")
    for forms, column in ((facts["kernels"], "kernel"), (others, "where a default is replaced")):
        if forms or not others:
            say("")
            rows = [(row["name"], str(row["launches"]), row["origin"]) for row in forms]
            say_table((column, "launches", "origin of the first"), rows, right="launches")
    say_slow_kernels([KernelWarning(**row) for row in facts["warnings"]])


def _say_ports(facts: dict[str, Any]) -> None:
    for word in ("input", "output"):
        for row in facts[f"{word}s"]:
            note = ", with a default" if row.get("default") else ""
            say(f"{word:9} {row['name']}: {port_text(row['dtype'], row['shape'])}{note}")


# --- model files ---


def model_facts(path: Path, shapes: "Shapes | None" = None) -> dict[str, Any]:
    """What a model file holds, and whether it can be imported with those shapes of its inputs.

    ShapesError if shapes are given that do not fit.
    """
    from tilewright.cli.onnx_contents import operator_counts, weights_of
    from tilewright.errors import FrontendError, ShapesError, UnsupportedOperatorError
    from tilewright.frontends import import_model
    from tilewright.frontends.onnx.limits import Limits
    from tilewright.frontends.onnx.load import load_model

    loaded = load_model(path, Limits())
    graph = loaded.proto.graph
    weights = weights_of(loaded.proto)
    facts: dict[str, Any] = {
        "kind": "onnx",
        "file": str(path),
        "bytes": path.stat().st_size,
        "producer": f"{loaded.proto.producer_name} {loaded.proto.producer_version}".strip(),
        "opsets": {domain or "ai.onnx": version for domain, version in loaded.opsets.items()},
        "operators": operator_counts(loaded.proto),
        "inputs": [],
        "outputs": [],
        "symbols": [],
        "parameters": weights.elements,
        "tensors": weights.tensors,
        "unsupported": {},
        "refusal": None,
    }
    try:
        module = import_model(str(path), shapes)
    except UnsupportedOperatorError as error:
        besides = error.besides or None
        return facts | declared(graph) | {"unsupported": error.operators, "refusal": besides}
    except FrontendError as error:
        if shapes and isinstance(error, ShapesError):
            raise
        return facts | declared(graph) | {"refusal": str(error)}

    def port(name: str, value: Any) -> dict[str, Any]:
        dims = [d if isinstance(d, int) else str(d) for d in map(_plain, value.type.shape)]
        return {"name": name, "dtype": value.type.dtype.full_name, "shape": dims}

    facts["inputs"] = list(map(port, module.input_names, module.graph.inputs))
    for row in facts["inputs"]:
        if row["name"] in module.defaults:
            row["default"] = {"shape": list(module.defaults[row["name"]].shape)}
    facts["outputs"] = list(map(port, module.output_names, module.graph.outputs))
    facts["symbols"] = list(module.symbols)
    return facts


def declared(graph: "onnx.GraphProto") -> dict[str, Any]:
    """Inputs, outputs and symbols as the file itself has them: an open rank is ``...``, a dim
    without size or name ``?``.
    """
    given = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in given]
    symbols = {
        dim.dim_param: None
        for info in (*inputs, *graph.output)
        for dim in info.type.tensor_type.shape.dim
        if dim.dim_param
    }
    return {
        "inputs": list(map(_declared_port, inputs)),
        "outputs": list(map(_declared_port, graph.output)),
        "symbols": list(symbols),
    }


def _declared_port(info: "onnx.ValueInfoProto") -> dict[str, Any]:
    from tilewright.errors import FrontendError
    from tilewright.frontends.onnx.tensors import dtype_of

    if not info.type.HasField("tensor_type"):
        kind = (info.type.WhichOneof("value") or "unknown").removesuffix("_type")
        return {"name": info.name, "dtype": kind, "shape": ["..."]}
    declared_type = info.type.tensor_type
    try:
        dtype = dtype_of(declared_type.elem_type, "").full_name
    except FrontendError:
        dtype = "unknown"
    dims: list[int | str] = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"
        for dim in declared_type.shape.dim
    ]
    return {
        "name": info.name,
        "dtype": dtype,
        "shape": dims if declared_type.HasField("shape") else ["..."],
    }


def _plain(dim: Any) -> Any:
    from tilewright.ir.expr import Const

    return int(dim.literal) if isinstance(dim, Const) else dim


def _say_model(facts: dict[str, Any]) -> None:
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts["opsets"].items())
    say(f"model     {facts['file']}, {size_text(facts['bytes'])}")
    say(f"producer  {facts['producer'] or 'unknown'}")
    say(f"opsets    {opsets}")
    held = ", ".join(f"{count} {where}" for where, count in facts["tensors"].items() if count)
    tensors = counted(sum(facts["tensors"].values()), "tensor")
    say(f"weights   {counted(facts['parameters'], 'element')}, {tensors}{held and f': {held}'}")
    _say_ports(facts)
    for name in facts["symbols"]:
        say(f"symbol    {name}")
    words = ", ".join(f"{name}: {count}" for name, count in facts["unsupported"].items())
    refusal = facts["refusal"] or ""
    why = f"{words}. Besides: {refusal}" if words and refusal else words or refusal
    say(f"supported {'no: ' + why if why else 'yes'}")
    say("")
    rows = [(name, str(count)) for name, count in facts["operators"].items()]
    say_table(("operator", "nodes"), rows, right="nodes")
