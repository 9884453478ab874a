# SPDX-License-Identifier: Apache-2.0
"""How many kernels a run of a known network launches: import and graph passes only, no code.

Exact numbers, so that fusion neither loses nor gains ground unnoticed; bless a better one by
editing the table. The limits hold whatever is blessed: a convolutional network has one kernel for
each convolution, with its bias, residual sum and activation inside, and little else; a layer of a
transformer has eight products, a softmax, two normalisations, and room for one more.
"""

from collections import Counter
from pathlib import Path

import onnx
import pytest

import tilewright
from benchmarks.archives import ZooError
from benchmarks.zoo import model_path
from tilewright.driver import CompileOptions, Report, optimize
from tilewright.frontends import import_model
from tilewright.ir.graph import Constant
from tilewright.ir.ops.group import Group
from tilewright.ir.ops.index_fault import IndexFault
from tilewright.ir.target import parse_target
from tilewright.passes.op_kinds import is_alias

DIGITS = Path(tilewright.__file__).parent / "data" / "digits.onnx"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
KINDS = ("contraction", "reduction", "elementwise")

# Groups of each of KINDS, and the most that there may be in all.
PACKAGED = {
    "digits": ((6, 2, 0), 8),
    "light_resnet50": ((54, 3, 0), 57),
    "light_squeezenet": ((26, 5, 9), 40),  # 8 concatenations of channels, the input's layout
    "light_vgg19": ((19, 6, 2), 27),  # has a weight made by ConstantOfShape, of 400 MB
}
ZOO = {
    "resnet50": ((54, 2, 0), 57),
    "mobilenetv2_100": ((53, 1, 0), 55),
    "minilm_l6_v2_trained": ((49, 19, 9), 6 * 12 + 8),
    "vit_small_patch16_224": ((98, 37, 4), 12 * 12 + 8),
}


def count_groups(model: Path, target: str) -> Counter[str]:
    """Kinds of the groups that the pipeline makes of a model; each group is one launch. Checks of
    indices, which are beside the work, are not counted.
    """
    module = import_model(model)
    optimize(module, parse_target(target), CompileOptions(), Report())
    others = [n for n in module.graph.nodes if not isinstance(n.op, Group | Constant)]
    assert all(map(is_alias, others)), "a node outside of the groups is more than another name"
    groups = [n for n in module.graph.nodes if isinstance(n.op, Group)]
    last = {n: n.regions[0].nodes[-1].op for n in groups}
    return Counter(n.op.kind for n in groups if not isinstance(last[n], IndexFault))


def check(model: Path, target: str, counts: tuple[int, ...], most: int) -> None:
    found = count_groups(model, target)
    assert found.keys() <= set(KINDS)
    assert tuple(found[kind] for kind in KINDS) == counts
    assert found.total() <= most


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_models(name: str, target: str) -> None:
    check(DIGITS if name == "digits" else LIGHT / f"{name}.onnx", target, *PACKAGED[name])


@pytest.mark.zoo
@pytest.mark.parametrize("name", ZOO)
def test_zoo_models(name: str) -> None:
    try:
        path = model_path(name)
    except ZooError as error:
        pytest.skip(str(error))
    check(path, "x86-64-v3", *ZOO[name])
