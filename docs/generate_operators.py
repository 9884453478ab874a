# SPDX-License-Identifier: Apache-2.0
"""Writes operators.md: the ONNX operators that are supported, from the tables of the frontend.

    python docs/generate_operators.py

A test holds the page to what this script makes.
"""

import sys
from pathlib import Path

import onnx

from tilewright.frontends import import_model  # noqa: F401  (registers the handlers)
from tilewright.frontends.onnx.functions import has_standard_body
from tilewright.frontends.onnx.ops_experimental import EXPERIMENTAL
from tilewright.frontends.onnx.registry import NEWEST_OPSET, OLDEST_OPSET, supported_operators
from tilewright.frontends.onnx.tensors import DTYPES
from tilewright.ir.dtypes import STRING

PAGE = Path(__file__).with_name("operators.md")
TYPES = ", ".join(f"`{t.full_name}`" for t in DTYPES.values() if t is not STRING)
HEAD = f"""# Supported operators

Written by `python docs/generate_operators.py`; do not edit.

ONNX operator sets {OLDEST_OPSET} to {NEWEST_OPSET} are understood. *Since* lists the versions of
the operator set from which a form of the operator is handled; each holds up to the next. Some
uses may still be refused: `tilewright inspect model.onnx` tells which nodes of a model are not
supported, and why.

Element types are {TYPES}, as far
as ONNX lets an operator have them. Strings, sequences and optional values are not supported.
Operators on `float16` and `bfloat16` compute in `float32`, however many steps they take, and their
results are rounded once.

Where an operand decides the shape of a result, or which nodes run, it must be a constant or follow
from the shapes of the model's inputs: the shape of `Reshape` and `Expand`, the repeats of `Tile`,
the bounds of `Slice` and `Range`, the pads of `Pad`, the sizes of `Resize`, the condition of
`Compress` and of `If`. It may follow in any way, by integers, floats or conditions, each rounded as
its element type says; branches of an `If` on a symbolic shape must compute shapes too. Where an
operand holds indices (`Gather`, `GatherElements`, `GatherND`, and the operators of `Scatter`), they
may be any data: one that is out of range is an error of the run, unless the model is compiled with
`--unchecked-indices`, which clamps it. `MaxPool` is supported where nothing reads its second
output, and no operator in training mode.

{", ".join(f"`{name}`" for name in EXPERIMENTAL)}, and the first forms of
`MeanVarianceNormalization` and `ThresholdedRelu`, were experimental up to set 9 and are no longer
in the standard: in models of these sets they mean what they do in ONNX Runtime. In sets 1 to 6
`BatchNormalization` and `Dropout` are taken to infer unless `is_test` is 0.
"""
FUNCTIONS = """## By the standard's own definition

The ONNX standard defines these operators by others, and they are compiled as that definition says.
Each is supported as far as the operators of its definition are.
"""


def domain_name(domain: str) -> str:
    """The name of an operator set as people write it."""
    return domain or "ai.onnx"


def introduced(domain: str, name: str) -> int:
    """The version of the operator set that first had the operator; 0 if the standard has none."""
    known = onnx.defs.get_all_schemas_with_history()
    found = [s.since_version for s in known if (s.domain, s.name) == (domain, name)]
    return min(found, default=0)


def handled() -> list[str]:
    """A table for each operator set with the operators that have handlers."""
    tables: dict[str, list[str]] = {}
    for (domain, name), since in supported_operators().items():
        first = max(introduced(domain, name), 1 if domain else OLDEST_OPSET)
        versions = ", ".join(map(str, sorted({max(v, first) for v in since})))
        tables.setdefault(domain, []).append(f"| {name} | {versions} |")
    return [
        "\n".join([f"## {domain_name(domain)}\n", "| operator | since |", "| --- | --- |", *rows])
        for domain, rows in sorted(tables.items())
    ]


def defined() -> list[str]:
    """The operators of the standard without a handler that have a function body."""
    known = supported_operators()
    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    names = {
        s.name
        for s in onnx.defs.get_all_schemas()
        if not s.domain and not any("seq(" in t for i in s.inputs for t in i.types)
    }
    return sorted(n for n in names if ("", n) not in known and has_standard_body("", n, newest))


def page() -> str:
    """The whole page."""
    return "\n".join(
        [HEAD, *(f"{t}\n" for t in handled()), FUNCTIONS, f"{', '.join(defined())}.\n"]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit()
