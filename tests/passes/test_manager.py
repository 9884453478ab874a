# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.targets import NARROW
from tilewright.ir.dtypes import F32
from tilewright.ir.errors import PassError, VerifyError
from tilewright.ir.graph import Builder, Graph, Module, Value
from tilewright.ir.ops.unary import Exp, Neg
from tilewright.ir.target import parse_target
from tilewright.ir.types import tensor
from tilewright.passes.manager import (
    Dump,
    Pass,
    PassContext,
    Time,
    Verify,
    parse_pipeline,
    run_passes,
)

CONTEXT = PassContext(NARROW)


@dataclass(frozen=True)
class Probe(Pass):
    """Does nothing, with an option of each kind."""

    name: ClassVar[str] = "test-probe"
    count: int = 1
    ratio: float = 0.5
    dry_run: bool = False
    word: str = "x"

    def run(self, module: Module, context: PassContext) -> bool:
        return self.dry_run


def module_with_dead_node() -> Module:
    graph = Graph("main", [Value(tensor(F32, (2,)), "x")])
    module = Module(graph, input_names=["x"], output_names=["y"])
    build = Builder(graph, module.constants)
    build(Exp(), graph.inputs[0])
    graph.set_outputs([build(Neg(), graph.inputs[0])])
    return module


def test_a_pipeline_is_parsed_with_options() -> None:
    text = "test-probe{count=0x10, ratio=2, dry-run, word=a b},test-probe , eliminate-dead-code"
    passes = parse_pipeline(text)
    assert passes[:2] == [Probe(16, 2.0, True, "a b"), Probe()]
    assert passes[2].name == "eliminate-dead-code"
    assert str(passes[0]) == "test-probe{count=16,ratio=2.0,dry-run=true,word=a b}"
    assert parse_pipeline(str(passes[0])) == passes[:1]
    assert parse_pipeline("") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("canonicalise", "There is no pass called 'canonicalise'. Did you mean 'canonicalize'?"),
        (
            "fold-constants{capp=1}",
            "There is no option of pass 'fold-constants' called 'capp'. Did you mean 'cap'?",
        ),
        ("fuse{x=1}", "There is no option of pass 'fuse' called 'x'. There is none."),
        (
            "test-probe{count=many}",
            "Option 'count' of pass 'test-probe' is 'many'. Write an integer.",
        ),
        (
            "test-probe{dry-run=1}",
            "Option 'dry-run' of pass 'test-probe' is '1'. Write 'true' or 'false'.",
        ),
        ("fuse;fuse", "Pipeline text 'fuse;fuse' is not understood."),
    ],
)
def test_mistakes_in_a_pipeline_are_explained(text: str, message: str) -> None:
    with pytest.raises(PassError) as error:
        parse_pipeline(text)
    assert message in str(error.value)


def test_instruments_see_every_pass(tmp_path: Path) -> None:
    module = module_with_dead_node()
    seen: list[int] = []
    times = Time()
    verify = Verify(lambda m: seen.append(len(m.graph.nodes)))
    passes = parse_pipeline("eliminate-dead-code,test-probe")
    assert run_passes(module, passes, CONTEXT, [verify, times, Dump(tmp_path)])
    assert seen == [1, 1]
    assert [(r.name, r.changed, r.nodes) for r in times.rows] == [
        ("eliminate-dead-code", True, 1),
        ("test-probe", False, 1),
    ]
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["01-eliminate-dead-code.ir", "02-test-probe.ir"]
    text = (tmp_path / names[1]).read_text()
    assert "(unchanged)" in text and "neg(x)" in text and "exp(" not in text


def test_a_failed_check_names_the_pass() -> None:
    def fail(module: Module) -> None:
        raise VerifyError("Broken.")

    with pytest.raises(VerifyError) as error:
        run_passes(module_with_dead_node(), parse_pipeline("test-probe"), CONTEXT, [Verify(fail)])
    assert error.value.__notes__ == ["The pass 'test-probe' ran last."]


def test_passes_can_be_switched_off() -> None:
    module = module_with_dead_node()
    off = replace(CONTEXT, disabled=frozenset(("eliminate-dead-code",)))
    assert not run_passes(module, parse_pipeline("eliminate-dead-code"), off)
    assert len(module.graph.nodes) == 2
    with pytest.raises(PassError, match="Did you mean 'eliminate-dead-code'"):
        run_passes(module, [], replace(CONTEXT, disabled=frozenset(("eliminate-deadcode",))))


def test_tests_of_passes_name_a_target() -> None:
    with pytest.raises(AssertionError, match="name a target"):
        parse_target("native")


def test_the_numeric_policy_is_checked() -> None:
    with pytest.raises(PassError, match=r"'fast' is unknown\. Choose one of 'strict', 'default'"):
        replace(CONTEXT, numerics="fast")
