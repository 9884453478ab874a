# SPDX-License-Identifier: Apache-2.0
"""The golden tests' own test: what a case outputs, and that it notices what it should."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from golden_collector import GoldenCase, GoldenFile, GoldenMismatch, run_case

from tilewright.ir.graph import Builder, Constant, Module
from tilewright.ir.ops.unary import Exp
from tilewright.passes.manager import Pass, PassContext

MODULE = """module {
  graph @main(x: f32[2]) -> (y) {
    %w: f32[2] = constant() {data=#w}
    %0: f32[2] = mul(x, %w)
    return %0
  }
}"""
KERNEL = """kernel @k(x: f32[8]) -> (y: f32[8]) {
  stage map s(i in 8) -> y[i] = exp(x[i])
  for i in 8 serial {
    block s.map(i) {
      y[i] = exp(x[i])
    }
  }
}"""


@pytest.fixture(autouse=True)
def _passes() -> Iterator[None]:
    """Two passes that exist in this file only."""

    @dataclass(frozen=True)
    class Double(Pass):
        """Doubles every constant: changes the values."""

        name = "test-double"

        def run(self, module: Module, context: PassContext) -> bool:
            for node in module.graph.nodes:
                if isinstance(node.op, Constant):
                    node.op = Constant(module.constants.add(module.constants[node.op.data] * 2))
            return True

    @dataclass(frozen=True)
    class Break(Pass):
        """Leaves a use list wrong."""

        name = "test-break"

        def run(self, module: Module, context: PassContext) -> bool:
            builder = Builder(module.graph, module.constants)
            builder(Exp(), module.graph.inputs[0])
            module.graph.inputs[0].uses.pop()
            return True

    yield
    del Pass.registry[Double.name], Pass.registry[Break.name]


def test_constants_have_names() -> None:
    output = run_case(
        f"// pass: test-double\n// constant w = f32[2](1.5, -2)\n// values: skip\n{MODULE}"
    )
    assert output.split("\n")[2:] == [
        "    %w: f32[2] = constant() {data=#c0}",
        "    %0: f32[2] = mul(x, %w)",
        "    return %0",
        "  }",
        "}",
        "// c0 = f32[2](3.0, -4.0)",
    ]
    same = run_case(f"// pass: eliminate-dead-code\n// constant w = f32[2](1.5, -2)\n{MODULE}")
    assert same == MODULE


def test_changed_values_are_noticed() -> None:
    with pytest.raises(AssertionError, match="The values of 'y' changed"):
        run_case(f"// pass: test-double\n// constant w = f32[2](1.5, -2)\n{MODULE}")


def test_broken_modules_are_noticed() -> None:
    output = run_case(f"// pass: test-break\n// constant w = f32[2](1, 2)\n{MODULE}")
    assert output.startswith("// VerifyError: [G4] Value 'x'")


def test_an_output_that_depends_on_the_target_is_noticed() -> None:
    case = MODULE.replace("f32[2]", "f32[2,2]").replace("mul(x", "matmul(x")
    case = f"// constant w = f32[2,2](1, 2, 3, 4)\n{case}"
    with pytest.raises(AssertionError, match="depends on the target: add a line '// target"):
        run_case(f"// pass: assign-layout\n{case}")
    for level, block in (("v2", 8), ("v3", 16), ("v4", 32)):
        output = run_case(f"// pass: assign-layout\n// target: x86-64-{level}\n{case}")
        assert f"relayout(%w) {{layout={{1,0;1:{block}}}}}" in output


def test_schedules_are_applied() -> None:
    output = run_case(f"// schedule: split(i, 4)\n// schedule: vectorize(i_i)\n{KERNEL}")
    assert "for i_i in 4 vectorized {" in output
    refused = run_case(f"// schedule: split(q, 4)\n{KERNEL}")
    assert refused.startswith("// ScheduleError: ")


def test_groups_are_lowered() -> None:
    text = """module {
  graph @main(x: f32[2]) -> (y) {
    %0: f32[2] = group(x) {kind="elementwise"} {
      graph @g(a: f32[2]) {
        %0: f32[2] = exp(a)
        return %0
      }
    }
    return %0
  }
}"""
    output = run_case(f"// lower:\n{text}")
    assert output.startswith("kernel @k")
    assert "= exp(" in output


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ValueError, match="A case starts with one of pass, lower"):
        run_case("// frob: x\nmodule {}")


def test_a_file_is_compared_and_blessed(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "cases.ir"
    case = f"// parse: kernel\n{KERNEL.replace('8', '4')}"
    path.write_text(f"{case}\n// ----\nwrong\n// ====\n{case}\n", encoding="utf-8")

    class Config:
        """Stands in for the command line."""

        update = False

        def getoption(self, name: str) -> bool:
            assert name == "--update-golden"
            return self.update

    def items() -> list[GoldenCase]:
        file = GoldenFile.from_parent(request.session, path=path)
        found = [item for item in file.collect() if isinstance(item, GoldenCase)]
        for item in found:
            item.config = config  # type: ignore[assignment]
        return found

    config = Config()
    for item in items():
        with pytest.raises(GoldenMismatch):
            item.runtest()
    config.update = True
    for item in items():
        item.runtest()
    config.update = False
    for item in items():
        item.runtest()
    output = KERNEL.replace("8", "4")
    assert path.read_text(encoding="utf-8") == (
        f"{case}\n// ----\n{output}\n// ====\n{case}\n// ----\n{output}\n"
    )
    assert np.all([item.name.endswith("-parse") for item in items()])
