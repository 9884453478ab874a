# SPDX-License-Identifier: Apache-2.0
"""Typed access to a node's attributes.

An attribute of the wrong type, given twice, or unknown to the operator's schema is an error that
names the node. Inside a function, an attribute may refer to one of the call; :class:`Attributes`
resolves that.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import defs

from tilewright.frontends.names import quoted
from tilewright.ir.errors import FrontendError

_A = onnx.AttributeProto
Bindings = Mapping[str, onnx.AttributeProto]
Choice = TypeVar("Choice", bound=str)


class Attributes:
    """The attributes of one node; ``where`` names the node in messages."""

    def __init__(
        self, given: Sequence[onnx.AttributeProto], bindings: Bindings, where: str
    ) -> None:
        self._where = where
        self._given: dict[str, onnx.AttributeProto] = {}
        for attribute in given:
            if attribute.name in self._given:
                raise FrontendError(
                    f"Node {where} has the attribute {quoted(attribute.name)} twice. Export the "
                    "model again."
                )
            if attribute.ref_attr_name:
                bound = bindings.get(attribute.ref_attr_name)
                if bound is None:
                    continue
                attribute = _renamed(bound, attribute.name)
            if attribute.type == _A.UNDEFINED:
                attribute = _typed(attribute)
            self._given[attribute.name] = attribute

    def __contains__(self, name: str) -> bool:
        return name in self._given

    @property
    def names(self) -> list[str]:
        return list(self._given)

    @property
    def bindings(self) -> dict[str, onnx.AttributeProto]:
        """The attributes by name, for the body of a function that this node calls."""
        return dict(self._given)

    def _find(self, name: str, kind: int) -> onnx.AttributeProto | None:
        attribute = self._given.get(name)
        if attribute is None:
            return None
        if attribute.type != kind:
            known = kind_name(attribute.type)
            raise FrontendError(
                f"Attribute {quoted(name)} of node {self._where} is of type {known}, not "
                f"{kind_name(kind)}. "
                "Export the model again."
            )
        return attribute

    def _required(self, name: str) -> FrontendError:
        return FrontendError(
            f"Node {self._where} lacks the attribute {quoted(name)}. Export the model again."
        )

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer; required if there is no default."""
        attribute = self._find(name, _A.INT)
        if attribute is None:
            if default is None:
                raise self._required(name)
            return default
        return int(attribute.i)

    def number(self, name: str, default: float | None = None) -> float:
        """A float; required if there is no default. In a model attributes are of float32, so the
        default is rounded as if it were written there.
        """
        attribute = self._find(name, _A.FLOAT)
        if attribute is None:
            if default is None:
                raise self._required(name)
            return float(np.float32(default))
        return float(attribute.f)

    def text(self, name: str, default: str | None = None) -> str:
        """A string; required if there is no default."""
        attribute = self._find(name, _A.STRING)
        if attribute is None:
            if default is None:
                raise self._required(name)
            return default
        return attribute.s.decode("utf-8", "replace")

    def choice(
        self, name: str, choices: tuple[Choice, ...], default: Choice | None = None
    ) -> Choice:
        """A string that is one of ``choices``."""
        given = self.text(name, default)
        for choice in choices:
            if choice == given:
                return choice
        raise FrontendError(
            f"Attribute {quoted(name)} of node {self._where} is {quoted(given)}; it must be one of "
            f"{', '.join(map(quoted, choices))}."
        )

    def integers(self, name: str) -> list[int] | None:
        """A list of integers; None if it is not given."""
        attribute = self._find(name, _A.INTS)
        return None if attribute is None else [int(i) for i in attribute.ints]

    def numbers(self, name: str) -> list[float] | None:
        """A list of floats; None if it is not given."""
        attribute = self._find(name, _A.FLOATS)
        return None if attribute is None else [float(f) for f in attribute.floats]

    def tensor(self, name: str) -> onnx.TensorProto | None:
        """A tensor; None if it is not given."""
        attribute = self._find(name, _A.TENSOR)
        return None if attribute is None else attribute.t

    def sparse_tensor(self, name: str) -> onnx.SparseTensorProto | None:
        """A sparse tensor; None if it is not given."""
        attribute = self._find(name, _A.SPARSE_TENSOR)
        return None if attribute is None else attribute.sparse_tensor

    def graph(self, name: str) -> onnx.GraphProto:
        """A sub-graph; required."""
        attribute = self._find(name, _A.GRAPH)
        if attribute is None:
            raise self._required(name)
        return attribute.g


def kind_name(kind: int) -> str:
    """The word for an attribute type."""
    return _A.AttributeType.Name(kind) if kind in _A.AttributeType.values() else str(kind)


def _renamed(attribute: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    if attribute.name == name:
        return attribute
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    copy.name = name
    return copy


_FIELDS: tuple[tuple[str, Any], ...] = (
    ("f", _A.FLOAT),
    ("i", _A.INT),
    ("s", _A.STRING),
    ("t", _A.TENSOR),
    ("g", _A.GRAPH),
    ("floats", _A.FLOATS),
    ("ints", _A.INTS),
    ("strings", _A.STRINGS),
    ("tensors", _A.TENSORS),
    ("graphs", _A.GRAPHS),
)


def _typed(attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    """The attribute with the type of the field that it fills: the first files told none."""
    filled = {descriptor.name for descriptor, _ in attribute.ListFields()}
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    copy.type = next((kind for name, kind in _FIELDS if name in filled), _A.UNDEFINED)
    return copy


@lru_cache(maxsize=4096)
def schema_of(domain: str, name: str, version: int) -> Any:
    """The standard's schema of an operator at a version; None if it has none."""
    try:
        return defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return None


def check_against_schema(
    schema: Any, attributes: Attributes, inputs: int, outputs: int, where: str
) -> None:
    """FrontendError if a node has attributes unknown to its schema, or too few or many inputs or
    outputs.
    """
    for name in attributes.names:
        if name not in schema.attributes:
            raise FrontendError(
                f"Node {where} has the attribute {quoted(name)}, which version "
                f"{schema.since_version} of the operator "
                "does not know. Export the model again."
            )
    for what, count, least, most in (
        ("inputs", inputs, schema.min_input, schema.max_input),
        ("outputs", outputs, schema.min_output, schema.max_output),
    ):
        if not (count <= most and (least <= count or what == "outputs")):
            raise FrontendError(
                f"Node {where} has {count} {what}; version {schema.since_version} of the "
                f"operator takes {least} to "
                f"{most}. Export the model again."
            )
