# SPDX-License-Identifier: Apache-2.0
"""Lowering: from a fusion group of the graph to a kernel in the loop IR.

``collect`` asks the ops of a group for their stages; ``inline`` merges maps into their readers;
``collapse`` joins axes that always go together; ``abstract`` replaces the model's dims by symbols
of the kernel's own, so that equal forms give equal kernels; ``nests`` builds the plain loops that
schedules start from; ``kernel`` does all this in order. ``split_reduction`` rewrites a stage for a
schedule step, so that it runs on vectors; ``work`` says how long a kernel takes.
"""
