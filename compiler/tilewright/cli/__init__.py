# SPDX-License-Identifier: Apache-2.0
"""The command line: one module for each command.

Commands import what they need when they run, and not before: help and completion take a tenth of a
second where numpy, onnx and LLVM would take one.
"""
