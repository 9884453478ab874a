# SPDX-License-Identifier: Apache-2.0
"""Golden tests: every ``.ir`` file below this folder is a list of cases of IR text in, text out.

A case is a header, the input, a line ``// ----`` and the exact output; ``// ====`` separates
cases::

    // pass: canonicalize,fold-constants{cap=64}
    // constant w = f32[2](1, 2)
    module {
      graph @main(x: f32[2]) -> (y) {
        %w: f32[2] = constant() {data=#w}
        ...

The first word says what is done: ``pass`` runs graph passes on a module, ``lower`` makes the
kernels of its groups, ``schedule`` applies schedule steps to a kernel (several lines are one
schedule), ``parse`` and ``verify`` do only that (``parse: module``, ``verify: kernel``). The output
is the text of the result, or ``// ErrorClass: message``. Further header lines: ``// constant NAME =
TYPE(values)`` makes a constant that the text calls ``#NAME`` (constants that a pass makes are
called ``#c0``, ``#c1``, and listed below the output); ``// values: skip`` leaves out the comparison
of what the reference interpreter computes before and after; ``// target: x86-64-v3`` is what passes
are told. A case of passes that names no target runs for two unlike ones, which must give the same.

``pytest --update-golden`` writes the outputs.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.targets import NARROW, WIDE
from tilewright.ir.dtypes import BOOL, DType
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr_parser import ExprParser
from tilewright.ir.graph import Constant, ConstantStore, Module
from tilewright.ir.graph_parser import parse_module
from tilewright.ir.interpreter.graphs import interpret_graph
from tilewright.ir.interpreter.loops import interpret_kernel, logical_shape
from tilewright.ir.loop import Kernel
from tilewright.ir.loop_parser import parse_host, parse_kernel
from tilewright.ir.op import Array
from tilewright.ir.rewrite import hinted
from tilewright.ir.target import parse_target
from tilewright.ir.types import TensorType
from tilewright.ir.verify_graph import verify_module
from tilewright.ir.verify_loop import verify_host, verify_kernel

CASES = "\n// ====\n"
OUTPUT = "\n// ----"
Header = dict[str, str]


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the outputs of golden tests"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return GoldenFile.from_parent(parent, path=file_path) if file_path.suffix == ".ir" else None


class GoldenFile(pytest.File):
    """One ``.ir`` file."""

    def collect(self) -> Iterator[pytest.Item]:
        for number, text in enumerate(self.path.read_text(encoding="utf-8").split(CASES)):
            head = re.match(r"// (\w+):[ ]*(.*)", text)
            label = f"{number}-{head[1]}" if head else str(number)
            yield GoldenCase.from_parent(self, name=label, number=number, text=text)


class GoldenMismatch(Exception):
    """The output differs from the expected one."""


class GoldenCase(pytest.Item):
    """One case of a file."""

    def __init__(self, *, number: int, text: str, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.number = number
        self.text = text

    def runtest(self) -> None:
        given, _, expected = self.text.partition(OUTPUT)
        actual = run_case(given)
        if actual.strip() == expected.strip():
            return
        if self.config.getoption("--update-golden"):
            cases = self.path.read_text(encoding="utf-8").split(CASES)
            cases[self.number] = f"{given.rstrip()}{OUTPUT}\n{actual.strip()}"
            self.path.write_text(CASES.join(c.strip() for c in cases) + "\n", encoding="utf-8")
            return
        raise GoldenMismatch(expected, actual)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        if isinstance(excinfo.value, GoldenMismatch):
            expected, actual = excinfo.value.args
            return f"Expected:\n{expected}\nGot:\n{actual}\nRun with --update-golden to bless it."
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}[{self.name}]"


def run_case(given: str) -> str:
    """The output of a case; errors of the compiler are outputs too.

    AssertionError if the case names no target and its output depends on one.
    """
    header, body = _header(given)
    kind = next(iter(header))
    if kind not in RUNNERS:
        raise ValueError(f"A case starts with one of {', '.join(RUNNERS)}, not '{kind}'.")
    if kind != "pass" or "target" in header:
        return _output(kind, header, body)
    narrow, wide = (_output(kind, {**header, "target": str(t)}, body) for t in (NARROW, WIDE))
    assert narrow == wide, (
        f"The output depends on the target: add a line '// target: x86-64-v3'.\n"
        f"For {NARROW}:\n{narrow}\nFor {WIDE}:\n{wide}"
    )
    return narrow


def _output(kind: str, header: Header, body: str) -> str:
    constants = ConstantStore()
    names = _constants(header.get("constant", ""), constants)
    for name, key in names.items():
        body = re.sub(rf"#{name}\b", f"#{key}", body)
    try:
        text = RUNNERS[kind](body, header[kind], header, constants)
    except TilewrightError as error:
        text = "\n".join(f"// {line}" for line in f"{type(error).__name__}: {error}".split("\n"))
    for name, key in names.items():
        text = text.replace(f"#{key}", f"#{name}")
    return text


def _header(given: str) -> tuple[Header, str]:
    header: Header = {}
    lines = given.split("\n")
    while lines and (match := re.match(r"// (\w+):? ?(.*)", lines[0])):
        header[match[1]] = f"{header[match[1]]}\n{match[2]}" if match[1] in header else match[2]
        lines.pop(0)
    return header, "\n".join(lines)


def _constants(text: str, store: ConstantStore) -> dict[str, str]:
    names: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        name, _, value = line.partition("=")
        parser = ExprParser(value)
        kind = parser.tensor_type()
        numbers = re.findall(r"[^\s,()]+", value.partition("(")[2])
        array = np.array([_number(n) for n in numbers]).astype(kind.dtype.numpy)
        names[name.strip()] = store.add(array.reshape(kind.static_shape)).sha256
    return names


def _number(text: str) -> float | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


# --- what a case can do ---


def _run_pass(body: str, pipeline: str, header: Header, constants: ConstantStore) -> str:
    # Passes are imported late, so that a fault in one does not stop the tests of the IR.
    from tilewright.passes.manager import PassContext, Verify, parse_pipeline, run_passes

    module = parse_module(body, constants)
    verify_module(module)
    compare = header.get("values") != "skip"
    feeds = _feeds(module) if compare else []
    before = interpret_graph(module, feeds) if compare else {}
    given = dict(constants.items())
    context = PassContext(parse_target(header["target"]))
    run_passes(module, parse_pipeline(pipeline), context, [Verify(verify_module)])
    if compare:
        _same(before, interpret_graph(module, feeds))
    text = str(module)
    again = str(parse_module(text, constants))
    assert again == text, f"The output does not parse back:\n{again}"
    return _with_new_constants(text, module, given)


def _with_new_constants(text: str, module: Module, given: dict[str, Array]) -> str:
    listing: dict[str, str] = {}
    for node in module.graph.walk():
        if isinstance(node.op, Constant) and node.op.data.sha256 not in {*given, *listing}:
            name = f"c{len(listing)}"
            array = module.constants[node.op.data]
            values = ", ".join(str(v) for v in array.reshape(-1)[:16].tolist())
            dims = ",".join(map(str, array.shape))
            more = ", ..." if array.size > 16 else ""
            listing[node.op.data.sha256] = (
                f"// {name} = {node.op.data.dtype}[{dims}]({values}{more})"
            )
            text = text.replace(f"#{node.op.data.sha256}", f"#{name}")
    return "\n".join([text, *listing.values()])


def _run_schedule(body: str, steps: str, header: Header, constants: ConstantStore) -> str:
    from tilewright.passes.schedule.schedule import apply, parse_schedule

    kernel = parse_kernel(body)
    verify_kernel(kernel)
    result = apply(kernel, parse_schedule(steps))
    verify_kernel(result)
    assert parse_kernel(str(result)) is result, "The output does not parse back."
    if header.get("values") != "skip":
        symbols = {s.name: hinted(s) for s in kernel.symbols}
        inputs = _kernel_inputs(kernel, symbols)
        _same(interpret_kernel(kernel, inputs, symbols), interpret_kernel(result, inputs, symbols))
    return str(result)


def _run_lower(body: str, _: str, header: Header, constants: ConstantStore) -> str:
    from tilewright.passes.lower.kernel import lower_group

    module = parse_module(body, constants)
    verify_module(module)
    kernels: list[Kernel] = []
    for node in module.graph.nodes:
        if node.op.name == "group":
            kernels.append(lower_group(node, module.constants).kernel)
            verify_kernel(kernels[-1])
            assert parse_kernel(str(kernels[-1])) is kernels[-1], "A kernel does not parse back."
    return "\n".join(map(str, dict.fromkeys(kernels)))


def _run_parse(body: str, what: str, header: Header, constants: ConstantStore) -> str:
    return str(PARSERS[what](body, constants))


def _run_verify(body: str, what: str, header: Header, constants: ConstantStore) -> str:
    VERIFIERS[what](PARSERS[what](body, constants))
    return "// verified"


PARSERS: dict[str, Callable[[str, ConstantStore], object]] = {
    "module": parse_module,
    "kernel": lambda text, _: parse_kernel(text),
    "host": lambda text, _: parse_host(text),
}
VERIFIERS: dict[str, Callable[..., None]] = {
    "module": verify_module,
    "kernel": verify_kernel,
    "host": verify_host,
}
RUNNERS: dict[str, Callable[[str, str, Header, ConstantStore], str]] = {
    "pass": _run_pass,
    "lower": _run_lower,
    "schedule": _run_schedule,
    "parse": _run_parse,
    "verify": _run_verify,
}

# --- comparison of values ---


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Numbers without special cases: floats of either sign, small integers."""
    if dtype is BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        return rng.integers(0, 4, shape).astype(dtype.numpy)
    return rng.standard_normal(shape).astype(dtype.numpy)


def _feeds(module: Module) -> list[Array]:
    rng = np.random.default_rng(0)

    def shape(kind: TensorType) -> tuple[int, ...]:
        return tuple(hinted(d) for d in kind.shape)

    return [random_array(rng, v.type.dtype, shape(v.type)) for v in module.graph.inputs]


def _kernel_inputs(kernel: Kernel, symbols: dict[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {b.name: random_array(rng, b.dtype, logical_shape(b, symbols)) for b in kernel.inputs}


def _same(before: dict[str, Array], after: dict[str, Array]) -> None:
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_allclose(
            np.asarray(after[name], dtype=np.float64),
            np.asarray(array, dtype=np.float64),
            rtol=1e-4,
            atol=1e-5,
            err_msg=f"The values of '{name}' changed.",
        )
