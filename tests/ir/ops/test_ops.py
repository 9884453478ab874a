# SPDX-License-Identifier: Apache-2.0
"""Every op on its own samples: inference and stages against the numpy reference, for several values
of symbols.
"""

import functools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright.ir.ops
from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import BF16, F16, F32, F64, DType, from_numpy
from tilewright.ir.expr import FALSE, TRUE, Binary, Expr, Symbol, Var, free_variables, index
from tilewright.ir.graph import Builder, ConstantStore, Graph, Value
from tilewright.ir.graph_parser import registered_ops
from tilewright.ir.interpreter.graphs import interpret_graph, with_dims
from tilewright.ir.interpreter.stages import run_stages
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.rewrite import evaluate, substitute
from tilewright.ir.sample_values import sample_operands, sample_symbols
from tilewright.ir.types import TensorType

OPS = {name: op for name, op in registered_ops().items() if any(op.samples())}
TOLERANCE = {F64: 1e-12, F32: 2e-5, F16: 4e-3, BF16: 3e-2}
Case = tuple[Sample, dict[str, int], list[Array], tuple[Array, ...]]
BUILT_IN = {
    name: op
    for name, op in registered_ops().items()
    if op.__module__.startswith("tilewright.ir.ops.") and not op.regions
}


def holds(condition: Expr, symbols: dict[str, int]) -> bool:
    """The truth of a condition on dims."""
    if isinstance(condition, Binary):
        parts = holds(condition.x, symbols), holds(condition.y, symbols)
        return any(parts) if condition.op == "or" else all(parts)
    known = {v: index(symbols[v.name]) for v in free_variables(condition) if isinstance(v, Symbol)}
    result = substitute(condition, known)
    assert result in (TRUE, FALSE)
    return result is TRUE


@functools.cache
def cases(op: type[Op]) -> list[Case]:
    """Samples of an op with values for symbols that its requirements admit, operands, and reference
    results.
    """
    found: list[Case] = []
    for sample in op.samples():
        requirements = sample.op.requirements(sample.operands)
        admitted = 0
        for symbols in sample_symbols(sample):
            if not all(holds(condition, symbols) for condition, _, _ in requirements):
                continue
            results = sample.op.infer(sample.operands)
            if any(evaluate(d, symbols) < 0 for t in results for d in t.shape):
                continue
            admitted += 1
            arrays = sample_operands(sample, symbols)
            expected = with_dims(sample.op, symbols).reference(*arrays)
            found.append((sample, symbols, arrays, expected))
        assert admitted, f"No values of the symbols of {sample} meet its requirements."
    return found


def assert_close(actual: Array, expected: Array, dtype: DType, label: str) -> None:
    """Equal, or as close as rounding in ``dtype`` allows; NaN and infinities at the same places."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype, label
    tolerance = TOLERANCE.get(dtype)
    if tolerance is None:
        if dtype.is_float:
            actual, expected = actual.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_array_equal(actual, expected, err_msg=label)
        return
    wide = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance, err_msg=label)


@pytest.mark.parametrize("name", OPS)
def test_inferred_types_are_those_of_the_reference(name: str) -> None:
    for sample, symbols, _, expected in cases(OPS[name]):
        types = sample.op.infer(sample.operands)
        assert len(types) == len(expected)
        for t, array in zip(types, expected, strict=True):
            assert t.dtype is from_numpy(array.dtype), sample
            assert tuple(evaluate(d, symbols) for d in t.shape) == array.shape, (sample, symbols)


@pytest.mark.parametrize("name", [n for n in OPS if OPS[n].stages is not Op.stages])
def test_stages_compute_the_reference(name: str) -> None:
    for sample, symbols, arrays, expected in cases(OPS[name]):
        operands = [buffer(f"x{i}", t) for i, t in enumerate(sample.operands)]
        results = [buffer(f"y{i}", t) for i, t in enumerate(sample.op.infer(sample.operands))]
        stages = sample.op.stages(operands, results)
        given = {b.name: a for b, a in zip(operands, arrays, strict=True)}
        memory = run_stages(stages, given, symbols)
        for result, array in zip(results, expected, strict=True):
            label = f"{sample} with {symbols}:\n" + "\n".join(map(str, stages))
            assert_close(memory[result.name], array, result.dtype, label)


@pytest.mark.parametrize("name", [n for n in OPS if OPS[n].stages is not Op.stages])
def test_names_in_stages_are_unique(name: str) -> None:
    for sample in OPS[name].samples():
        operands = [buffer(f"x{i}", t) for i, t in enumerate(sample.operands)]
        results = [buffer(f"y{i}", t) for i, t in enumerate(sample.op.infer(sample.operands))]
        stages = sample.op.stages(operands, results)
        written = [b.name for s in stages for b in s.outputs]
        axes = [v.name for s in stages for v in (*s.axes, *s.reduce_axes)]
        for names in (written, axes, [s.name for s in stages]):
            assert len(set(names)) == len(names), f"{sample}: {names}"
        assert {b.name for b in results} <= set(written)
        for stage in stages:
            used = {v for r in stage.reads() for i in r.indices for v in free_variables(i)}
            known = {*stage.axes, *stage.reduce_axes}
            assert {v for v in used if isinstance(v, Var)} <= known, stage


@pytest.mark.parametrize("name", [n for n in OPS if OPS[n].decompose is not Op.decompose])
def test_decomposition_computes_the_reference(name: str) -> None:
    for sample, symbols, arrays, expected in cases(OPS[name]):
        graph, constants = Graph("main"), ConstantStore()
        graph.inputs = [Value(bound(t, symbols), f"x{i}") for i, t in enumerate(sample.operands)]
        results = sample.op.decompose(Builder(graph, constants), graph.inputs)
        if results is None:  # this one is computed as it is
            assert type(sample.op).stages is not Op.stages
            continue
        graph.set_outputs(results)
        actual = interpret_graph(graph, arrays, constants)
        for array, wanted in zip(actual.values(), expected, strict=True):
            assert_close(array, wanted, from_numpy(wanted.dtype), str(sample))


def bound(t: TensorType, symbols: dict[str, int]) -> TensorType:
    """The type with symbols at their values."""
    return TensorType(t.dtype, tuple(index(evaluate(d, symbols)) for d in t.shape), t.layout)


def test_every_op_has_samples() -> None:
    assert BUILT_IN
    assert [name for name, op in BUILT_IN.items() if not any(op.samples())] == []


def test_a_file_is_all_that_an_op_needs(tmp_path: Path) -> None:
    """A new file of the folder is found by the generic tests, listed nowhere."""
    folder = Path(tilewright.ir.ops.__file__).parent
    for path in folder.parent.rglob("*.py"):
        copy = tmp_path / "tilewright/ir" / path.relative_to(folder.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    (tmp_path / "tilewright/__init__.py").touch()
    (tmp_path / "tilewright/base_error.py").write_text(
        (folder.parent.parent / "base_error.py").read_text()
    )
    text = (folder / "softmax.py").read_text()
    (tmp_path / "tilewright/ir/ops/cube.py").write_text(
        re.sub(r'"(log_)?softmax"', r'"\1cube"', text).replace("Softmax", "Cube")
    )
    code = "from tilewright.ir.graph_parser import registered_ops; print(*registered_ops())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"cube", "softmax"} <= set(done.stdout.split())
