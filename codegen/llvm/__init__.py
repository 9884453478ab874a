# SPDX-License-Identifier: Apache-2.0
"""The LLVM backend: loop IR to LLVM IR text, and that text to relocatable objects."""
