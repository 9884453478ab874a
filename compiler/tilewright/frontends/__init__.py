# SPDX-License-Identifier: Apache-2.0
"""Frontends: from model files to the graph IR, one folder a format."""

from tilewright.frontends.base import Frontend, import_model
from tilewright.frontends.onnx import OnnxFrontend

__all__ = ["Frontend", "OnnxFrontend", "import_model"]
