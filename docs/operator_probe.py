# SPDX-License-Identifier: Apache-2.0
"""What the compiler makes of sample nodes: which element types compile, what is refused and why.

The samples are the cases of ONNX's own node suite, each with its own attributes and shapes. One of
each operator is tried again with every element type that the standard lets it have. A sample counts
as supported if it goes all the way from the file to code for its kernels: imported, through the
graph passes, lowered, and emitted. What LLVM and the proof make of kernels is for the tests.
"""

import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as suite
from onnx import numpy_helper

from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.driver import CompileOptions, Report, lower_groups, optimize
from tilewright.errors import TilewrightError, UnsupportedOperatorError
from tilewright.frontends import import_model
from tilewright.frontends.onnx.tensors import CODES, DTYPES
from tilewright.ir.target import parse_target

Key = tuple[str, str]
_TARGET = parse_target("x86-64-v3,cores=2")
_MOST_VARIED = 3  # samples of an operator that are tried with other types
_SMALL = 64  # elements of an input that may decide a shape


@dataclass
class Support:
    """What is known of an operator: how many ``samples`` compile, with which element types and
    ranks of the first input; which types do not; why other samples are refused.
    """

    samples: int = 0
    ranks: set[int] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    refused_types: set[str] = field(default_factory=set)
    reasons: set[str] = field(default_factory=set)


def probe() -> dict[Key, Support]:
    """The support of every operator that the suite has a sample of."""
    found: dict[Key, Support] = {}
    varied: dict[Key, list[Any]] = {}
    for case in cases():
        node = case.model.graph.node[0]
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        support = found.setdefault(key, Support())
        reason = refusal(case.model, _arrays(case))
        first = case.model.graph.input[0].type.tensor_type if case.model.graph.input else None
        name = type_name(first.elem_type) if first is not None else ""
        if reason is None:
            support.samples += 1
            if first is not None:
                support.types.add(name)
                support.ranks.add(len(first.shape.dim))
            varied.setdefault(key, []).append(case)
        elif reason:
            support.reasons.add(reason)
    for key, compiled in varied.items():
        plain = sorted(compiled, key=lambda c: len(c.model.graph.node[0].attribute))
        _vary_types(plain[:_MOST_VARIED], found[key])
    return found


def cases() -> Iterator[Any]:
    """The cases of the suite whose model is one node, those of training left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(suite.__path__):
            importlib.import_module(f"{suite.__name__}.{module.name}")
    for case in sorted(suite._NodeTestCases, key=lambda c: str(c.name)):
        if case.model is not None and len(case.model.graph.node) == 1:
            yield case


def refusal(model: onnx.ModelProto, arrays: list[Any]) -> str | None:
    """None for a model that compiles; else why a node is not supported, empty for another fault."""
    try:
        compile_to_code(model)
    except UnsupportedOperatorError as error:
        if "computed at run time" not in str(error):
            return _reason(error)
    except TilewrightError:
        return ""
    else:
        return None
    try:
        compile_to_code(with_known_inputs(model, arrays))
    except UnsupportedOperatorError as error:
        return _reason(error)
    except TilewrightError:
        return ""
    return None


def compile_to_code(model: onnx.ModelProto) -> None:
    """Take a model to LLVM's text of its kernels, under no schedule; TilewrightError if that cannot
    be.
    """
    module = import_model(model)
    optimize(module, _TARGET, CompileOptions(), Report())
    for low in lower_groups(module):
        emit_kernel(low.kernel, _TARGET)


def with_known_inputs(model: onnx.ModelProto, arrays: list[Any]) -> onnx.ModelProto:
    """The model with its small integer inputs, and scalars, as constants: those that may decide a
    shape.
    """
    known = onnx.ModelProto()
    known.CopyFrom(model)
    operator = model.graph.node[0].op_type
    for position, (info, array) in enumerate(zip(model.graph.input, arrays)):
        decides = isinstance(array, np.ndarray) and array.size < _SMALL
        decides = decides and (array.dtype.kind in "ib" or array.ndim == 0 or position > 0)
        if decides and (position or len(arrays) == 1 or operator == "Range"):
            known.graph.initializer.append(numpy_helper.from_array(array, info.name))
            known.graph.input.remove(next(i for i in known.graph.input if i.name == info.name))
    return known


def type_name(code: int) -> str:
    """An element type under numpy's name; that of ONNX where there is none here."""
    if code in DTYPES:
        return DTYPES[code].full_name
    return onnx.TensorProto.DataType.Name(code).lower()


def _arrays(case: Any) -> list[Any]:
    """The inputs of a case; numpy gives some without dims as bare numbers."""
    given = case.data_sets[0][0] if case.data_sets else []
    return [np.asarray(a) if isinstance(a, np.generic) else a for a in given]


def _reason(error: UnsupportedOperatorError) -> str:
    """Why a node is refused, without the names of its operands."""
    entry = next(iter(error.operators), "")
    return entry.partition(", since ")[2].partition(" ('")[0]


def _vary_types(compiled: list[Any], support: Support) -> None:
    """Try cases with all element types that the standard allows for their first input; a type that
    compiles with one of them is supported.
    """
    for case in compiled:
        node = case.model.graph.node[0]
        version = {o.domain: o.version for o in case.model.opset_import}.get(node.domain, 1)
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        if not schema.inputs or not case.model.graph.input:
            continue
        variable = schema.inputs[0].type_str
        constraints = {t.type_param_str: t.allowed_type_strs for t in schema.type_constraints}
        for code in filter(None, map(_code, sorted(constraints.get(variable, [])))):
            if type_name(code) in (*support.types, "string"):
                continue  # strings are refused as such
            given = enumerate(_arrays(case))
            arrays = [_cast(a, code) if _same(schema, node, i, variable) else a for i, a in given]
            works = refusal(_with_type(case.model, schema, variable, code), arrays) is None
            (support.types if works else support.refused_types).add(type_name(code))
    support.refused_types -= support.types


def _code(text: str) -> int | None:
    """ONNX's number for a type such as ``tensor(float)``; None for what is no tensor."""
    if not text.startswith("tensor("):
        return None
    name = text[len("tensor(") : -1].upper()
    codes = onnx.TensorProto.DataType
    return int(codes.Value(name)) if name in codes.keys() else None  # noqa: SIM118


def _same(schema: Any, node: onnx.NodeProto, position: int, variable: str) -> bool:
    """Whether an input of the model, in the order of the node's, has that type variable."""
    given = [i for i, name in enumerate(node.input) if name]
    place = given[position] if position < len(given) else 0
    formal = schema.inputs[min(place, len(schema.inputs) - 1)]
    return bool(formal.type_str == variable)


def _with_type(model: onnx.ModelProto, schema: Any, variable: str, code: int) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for position, info in enumerate(other.graph.input):
        if _same(schema, other.graph.node[0], position, variable):
            info.type.tensor_type.elem_type = code
    for info in other.graph.output:
        info.type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    return other


def _cast(array: Any, code: int) -> Any:
    dtype = next((d for d, c in CODES.items() if c == code), None)
    if not isinstance(array, np.ndarray) or dtype is None or array.dtype.kind in "OUS":
        return array
    return array.astype(dtype.numpy)
