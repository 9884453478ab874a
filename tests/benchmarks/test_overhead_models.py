# SPDX-License-Identifier: Apache-2.0
"""The models that the benchmarks of fixed costs run, and the budgets of compile time."""

import numpy as np

import tilewright
from benchmarks.compile_time import CompileTime
from benchmarks.overhead import chain, identity_model
from tilewright import runtime
from tilewright.driver import CompileOptions, Report, build_module
from tilewright.ir.target import parse_target


def test_each_group_is_a_launch() -> None:
    built = build_module(chain(5), parse_target("native"), CompileOptions(cache=False), Report())
    feeds = {"x": np.full(1, -3, np.float32)}
    results, kernels = runtime.load(built.to_bytes()).run_profiled(feeds)
    assert results["y"].tolist() == [3.0]
    assert len(kernels) == 5


def test_identity() -> None:
    model = tilewright.compile(identity_model(), options=CompileOptions(cache=False))
    assert model(np.full(1, -3, np.float32)).tolist() == [-3.0]


def test_budgets() -> None:
    assert CompileTime("resnet50", 20.0, 1.0).within_budget
    assert not CompileTime("resnet50", 20.1, 1.0).within_budget
    assert not CompileTime("resnet50", 1.0, 1.1).within_budget
    assert CompileTime("mobilenetv2_100", 99.0, 99.0).within_budget
