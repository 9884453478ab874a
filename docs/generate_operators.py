# SPDX-License-Identifier: Apache-2.0
"""Writes operators.md: the ONNX operators that are supported, from the tables of the frontend and
from what samples of them compile to.

    python docs/generate_operators.py      # a minute or two

A test holds the page to what this script makes.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from operator_probe import Support, probe

from tilewright.frontends import import_model  # noqa: F401  (registers the handlers)
from tilewright.frontends.onnx.functions import has_standard_body
from tilewright.frontends.onnx.ops_experimental import EXPERIMENTAL
from tilewright.frontends.onnx.registry import NEWEST_OPSET, OLDEST_OPSET, supported_operators
from tilewright.frontends.onnx.tensors import DTYPES
from tilewright.ir.dtypes import STRING

# Types that no operator knows here: they are told once, above the tables.
UNKNOWN = frozenset(("string", "float6e2m3", "float6e3m2", "float8e8m0", "int2", "uint2"))
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

The other columns tell what was seen when this page was made: how many *samples* of the operator
compile (the cases of ONNX's node suite), the *ranks* of their first input, and what was refused:
element types of the first input that the standard allows, and the reasons why other samples were.
Not that nothing else is supported: a rank without a sample probably is.
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
Each is supported as far as the operators of its definition are; one without samples that compile
is not.
"""


def domain_name(domain: str) -> str:
    """The name of an operator set as people write it."""
    return domain or "ai.onnx"


def introduced(domain: str, name: str) -> int:
    """The version of the operator set that first had the operator; 0 if the standard has none."""
    known = onnx.defs.get_all_schemas_with_history()
    found = [s.since_version for s in known if (s.domain, s.name) == (domain, name)]
    return min(found, default=0)


def versions_of(domain: str, name: str, since: Sequence[int]) -> str:
    """The versions from which the forms of an operator are handled."""
    first = max(introduced(domain, name), 1 if domain else OLDEST_OPSET)
    return ", ".join(map(str, sorted({max(v, first) for v in since})))


def handled(probed: Mapping[tuple[str, str], Support]) -> list[str]:
    """A table for each operator set with the operators that have handlers."""
    tables: dict[str, list[str]] = {}
    for (domain, name), since in supported_operators().items():
        cells = [name, versions_of(domain, name, since), *restrictions(probed.get((domain, name)))]
        tables.setdefault(domain, []).append(row(cells))
    heads = ["operator", "since", "samples", "ranks", "not supported"]
    return [
        "\n".join([f"## {domain_name(domain)}\n", row(heads), row(["---"] * 5), *rows])
        for domain, rows in sorted(tables.items())
    ]


def row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(cells)} |")


def restrictions(support: Support | None) -> list[str]:
    """What was seen of an operator: samples that compile, ranks, and what is refused."""
    if support is None:
        return ["", "", ""]
    ranks = ", ".join(map(str, sorted(support.ranks)))
    refused = [f"`{name}`" for name in sorted(support.refused_types - UNKNOWN)]
    return [str(support.samples), ranks, "; ".join([*refused, *sorted(support.reasons)])]


def defined(probed: Mapping[tuple[str, str], Support]) -> list[str]:
    """The table of the operators without a handler that have a function body in the standard."""
    known = supported_operators()
    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    names = {
        s.name
        for s in onnx.defs.get_all_schemas()
        if not s.domain and not any("seq(" in t for i in s.inputs for t in i.types)
    }
    found = sorted(n for n in names if ("", n) not in known and has_standard_body("", n, newest))
    heads = ["operator", "samples", "ranks", "not supported"]
    rows = [row([name, *restrictions(probed.get(("", name)))]) for name in found]
    return [row(heads), row(["---"] * 4), *rows]


def page(probed: Mapping[tuple[str, str], Support]) -> str:
    """The whole page, from what :func:`operator_probe.probe` has found."""
    tables = [f"{table}\n" for table in handled(probed)]
    return "\n".join([HEAD, *tables, FUNCTIONS, *defined(probed), ""])


if __name__ == "__main__":
    PAGE.write_text(page(probe()), encoding="utf-8")
    sys.exit()
