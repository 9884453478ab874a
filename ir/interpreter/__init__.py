# SPDX-License-Identifier: Apache-2.0
"""Reference interpreters in numpy: of graphs, of stages, of kernels, of host programs.

They are slow and obvious, and share nothing with code generation: what a pass, a schedule or a
backend makes is held to what they say.
"""
