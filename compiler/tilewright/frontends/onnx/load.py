# SPDX-License-Identifier: Apache-2.0
"""From a path, bytes or a message to a checked :class:`onnx.ModelProto`.

Everything about the file as a whole is decided here: size, damage, whether it is ONNX at all, which
operator sets it asks for. What a graph holds is checked when it is walked.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tilewright.frontends.names import quoted
from tilewright.frontends.onnx.external_data import ExternalData
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.registry import NEWEST_OPSET, OLDEST_OPSET
from tilewright.frontends.onnx.texts import check_texts
from tilewright.frontends.onnx.weights import (
    Bytes,
    FileSource,
    MemorySource,
    split_weights,
)
from tilewright.frontends.onnx.weights import Source as Bytewise
from tilewright.ir.errors import FrontendError

Source = str | Path | bytes | onnx.ModelProto
_MODEL_FIELDS = (b"\x08", b"\x12", b"\x1a", b"\x3a", b"\x42")


@dataclass(frozen=True)
class LoadedModel:
    """A parsed model, the version of each operator set it imports, the way to its external data,
    and the data of initialisers, by position, that was cut out of the message.
    """

    proto: onnx.ModelProto
    opsets: dict[str, int]
    external: ExternalData
    weights: Mapping[int, Bytes] = field(default_factory=dict)


def looks_like_onnx(source: object) -> bool:
    """True for a model message, a path that ends in ``.onnx``, or bytes that begin like one."""
    if isinstance(source, onnx.ModelProto):
        return True
    if isinstance(source, str | Path):
        return str(source).lower().endswith(".onnx")
    return isinstance(source, bytes) and source.startswith(_MODEL_FIELDS)


def load_model(source: Source, limits: Limits, folder: str | Path | None = None) -> LoadedModel:
    """Parse and check a model. ``folder`` is where external data may lie; that of the file where a
    path is given.
    """
    shown = "The given model"
    weights: dict[int, Bytes] = {}
    if isinstance(source, onnx.ModelProto):
        proto = source
    elif isinstance(source, bytes):
        proto, weights = _parse(MemorySource(source), shown, limits)
    elif isinstance(source, str | Path):
        shown = f"File {quoted(str(source))}"
        proto, weights = _read(Path(source), shown, limits)
        folder = Path(source).parent if folder is None else folder
    else:
        raise FrontendError(
            "A model is given as a path, as bytes or as an onnx.ModelProto, not as something of "
            f"type '{type(source).__name__}'."
        )
    check_texts(proto, shown)
    external = ExternalData(None if folder is None else Path(folder))
    return LoadedModel(proto, _checked_opsets(proto, shown), external, weights)


def _read(path: Path, shown: str, limits: Limits) -> tuple[onnx.ModelProto, dict[int, Bytes]]:
    try:
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FrontendError(f"{shown} is not a regular file. Give the path of a model.")
            return _parse(FileSource(file.fileno(), status.st_size), shown, limits)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FrontendError(f"{shown} cannot be read: {reason}. Check the path.") from error


def _parse(
    source: Bytewise, shown: str, limits: Limits
) -> tuple[onnx.ModelProto, dict[int, Bytes]]:
    limits.check(f"The size of {shown[0].lower()}{shown[1:]}", source.size, "model_bytes")
    data, weights = split_weights(source)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise FrontendError(
            f"{shown} is not an ONNX model or is damaged: its protobuf does not parse. Fetch or "
            "export it again."
        ) from error
    return proto, weights


def _checked_opsets(proto: onnx.ModelProto, shown: str) -> dict[str, int]:
    if not proto.HasField("graph") or not proto.ir_version or not proto.graph.output:
        raise FrontendError(
            f"{shown} is not a complete ONNX model: it has no graph with outputs. Fetch or "
            "export it again."
        )
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if opsets.get(domain, entry.version) != entry.version:
            raise FrontendError(
                f"{shown} imports operator set {quoted(domain or 'ai.onnx')} at versions "
                f"{opsets[domain]} and "
                f"{entry.version}. Export it again with one."
            )
        opsets[domain] = entry.version
    # Files from before operator sets existed mean version 1. A later one without the standard's may
    # consist of functions alone; a node that needs it is refused when it is met.
    if proto.ir_version < 3:
        opsets.setdefault("", 1)
    version = opsets.get("", NEWEST_OPSET)
    if not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise FrontendError(
            f"{shown} uses operator set {version}; {OLDEST_OPSET} to {NEWEST_OPSET} are "
            "understood. "
            "Convert it with onnx.version_converter or export it again."
        )
    return opsets
