# SPDX-License-Identifier: Apache-2.0
"""ONNX's own node suite: each case is imported and run by the reference interpreter.

A case is supported unless ``UNSUPPORTED`` lists it; a listed one must be refused with a typed
error, so the list shrinks as operators are added. Where a node takes integers that decide shapes as
graph inputs, the case is tried again with them baked in.
"""

import importlib
import warnings
from fnmatch import fnmatch
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as suite
import pytest
from onnx import numpy_helper

from tests.frontends.onnx_running import as_array, compared
from tilewright.frontends.onnx import import_model
from tilewright.ir.errors import FrontendError, UnsupportedOperatorError
from tilewright.ir.graph import Module
from tilewright.ir.interpreter.graphs import interpret_graph

MODULES = [
    "abs",
    "acos",
    "acosh",
    "add",
    "affinegrid",
    "and_",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "attention",
    "batch_normalization",
    "bitshift",
    "bitwiseand",
    "bitwisenot",
    "bitwiseor",
    "bitwisexor",
    "blackmanwindow",
    "cast",
    "castlike",
    "causal_conv_with_state",
    "ceil",
    "celu",
    "center_crop_pad",
    "clip",
    "compress",
    "concat",
    "constant",
    "constantofshape",
    "conv",
    "convtranspose",
    "cos",
    "cosh",
    "cumsum",
    "depthtospace",
    "div",
    "dropout",
    "einsum",
    "elu",
    "equal",
    "erf",
    "exp",
    "expand",
    "eyelike",
    "flatten",
    "flexattention",
    "floor",
    "gather",
    "gatherelements",
    "gathernd",
    "gelu",
    "gemm",
    "globalaveragepool",
    "globalmaxpool",
    "greater",
    "greater_or_equal",
    "groupnormalization",
    "hammingwindow",
    "hannwindow",
    "hardmax",
    "hardsigmoid",
    "hardswish",
    "identity",
    "if_",
    "instance_normalization",
    "isinf",
    "isnan",
    "layernormalization",
    "leakyrelu",
    "less",
    "less_or_equal",
    "log",
    "logsoftmax",
    "lpnormalization",
    "lrn",
    "matmul",
    "max",
    "mean",
    "meanvariancenormalization",
    "min",
    "mish",
    "mod",
    "mul",
    "neg",
    "negativeloglikelihoodloss",
    "onehot",
    "or_",
    "pad",
    "pow",
    "prelu",
    "rangeop",
    "reciprocal",
    "reduce_log_sum",
    "reduce_log_sum_exp",
    "reducel1",
    "reducel2",
    "reducemax",
    "reducemean",
    "reducemin",
    "reduceprod",
    "reducesum",
    "reducesumsquare",
    "relu",
    "reshape",
    "resize",
    "rmsnormalization",
    "rotaryembedding",
    "round",
    "scatter",
    "scatterelements",
    "scatternd",
    "selu",
    "shape",
    "shrink",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "size",
    "slice",
    "softmax",
    "softmax_cross_entropy_loss",
    "softplus",
    "softsign",
    "spacetodepth",
    "split",
    "sqrt",
    "squeeze",
    "sub",
    "sum",
    "swiglu",
    "swish",
    "tan",
    "tanh",
    "thresholdedrelu",
    "tile",
    "transpose",
    "trilu",
    "unsqueeze",
    "upsample",
    "where",
    "xor",
]
# Their expected values are computed by slow loops when the module is loaded.
SLOW_MODULES = """
averagepool lppool maxpool
""".split()  # noqa: SIM905

# Case patterns that are refused, by reason.
UNSUPPORTED: dict[str, str] = {
    "test_cast_*e8m0*": "float8 scales",
    "test_castlike_*e8m0*": "float8 scales",
    "test_cast_INT2_*": "two-bit integers",
    "test_cast_UINT2_*": "two-bit integers",
    "test_cast_*_to_INT2": "two-bit integers",
    "test_cast_*_to_UINT2": "two-bit integers",
    "test_castlike_*INT2*": "two-bit integers",
    "test_training_dropout_default": "random numbers",
    "test_training_dropout_default_mask": "random numbers",
    "test_training_dropout": "random numbers",
    "test_training_dropout_mask": "random numbers",
    "test_maxpool_with_argmax_*": "positions of the maxima",
    "test_identity_sequence": "sequences",
    "test_identity_opt": "optional values",
    "test_if_seq": "sequences",
    "test_if_opt": "optional values",
    "test_range_*_expanded": "loops",
    "test_equal_string*": "strings",
}
# Case patterns where we answer otherwise than the suite, by reason.
DIFFERENT: dict[str, str] = {
    "test_cast*_FLOAT*_to_*INT4*": "numbers that do not fit are saturated; ONNX leaves that open",
    "test_resize_downsample_scales_*_align_corners": "the rounded length counts, as in PyTorch",
}


def cases_of(module: str) -> list[Any]:
    """The cases of one module of the suite; loading it makes them."""
    before = len(suite._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{suite.__name__}.{module}")
    found = suite._NodeTestCases[before:]
    _loaded.setdefault(module, found)
    return _loaded[module]


_loaded: dict[str, list[Any]] = {}


def unsupported_reason(name: str) -> str | None:
    """Why a case is not supported; None if it is."""
    return next((r for p, r in UNSUPPORTED.items() if fnmatch(name, p)), None)


def imported_case(case: Any) -> Module:
    """The case as a module, with deciding integers baked in if it cannot do without."""
    try:
        return import_model(case.model)
    except UnsupportedOperatorError as error:
        if "at run time" not in str(error):
            raise
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    arrays = [as_array(a) for a in case.data_sets[0][0]]
    only = len(arrays) == 1 or model.graph.node[0].op_type == "Range"
    for position, (info, array) in enumerate(zip(model.graph.input, arrays)):
        decides = array.dtype.kind in "ib" or array.ndim == 0 or info.name in ("roi", "scales")
        if array.size < 64 and decides and (position > 0 or only):
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    return import_model(model)


def run_case(case: Any) -> str | None:
    """What is wrong with the results of a case; None if nothing is."""
    module = imported_case(case)
    for inputs, outputs in case.data_sets:
        feeds = {i.name: as_array(a) for i, a in zip(case.model.graph.input, inputs)}
        results = interpret_graph(module, {n: feeds[n] for n in module.input_names})
        for name, value in zip(module.output_names, outputs):
            theirs = as_array(value)
            # The suite computes 16-bit cases in 16 bits; ours are computed in more.
            atol = max(case.atol, 1e-7 if theirs.dtype.itemsize > 2 else 4e-3)
            difference = compared(results[name], theirs, case.rtol, atol)
            if difference is not None:
                return f"{case.name}: {name}: {difference}"
    return None


def check_module(module: str) -> None:
    """Run the supported cases of a module, and see that the others are refused."""
    problems: list[str] = []
    for case in cases_of(module):
        if any(fnmatch(case.name, p) for p in DIFFERENT):
            continue
        if unsupported_reason(case.name) is None:
            problems.extend(filter(None, [run_case(case)]))
            continue
        try:
            imported_case(case)
            problems.append(f"{case.name} is supported now: take it off the list.")
        except FrontendError:
            pass
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("module", MODULES)
def test_node_cases(module: str) -> None:
    check_module(module)


@pytest.mark.slow
@pytest.mark.parametrize("module", SLOW_MODULES)
def test_slow_node_cases(module: str) -> None:
    check_module(module)


def test_suite_is_large() -> None:
    """Guards against a suite that silently became empty."""
    names = {c.name for cases in _loaded.values() for c in cases}
    supported = [n for n in names if unsupported_reason(n) is None]
    if len(_loaded) == len(MODULES):
        assert len(supported) > 1300
    assert np.all([n.startswith("test_") for n in names])
