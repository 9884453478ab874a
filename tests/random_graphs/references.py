# SPDX-License-Identifier: Apache-2.0
"""The two references: ONNX Runtime, and the evaluator of the ``onnx`` package."""

import warnings

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from tests.random_graphs.spec import BF16, Spec

Values = dict[str, np.ndarray]


def by_onnxruntime(spec: Spec, model: onnx.ModelProto) -> list[Values] | None:
    """What ONNX Runtime computes for each feed; None if it does not know an operator or type."""
    if any(spec.tensors[n].dtype == BF16 for n in spec.inputs):
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [
            dict(zip(spec.outputs, session.run(list(spec.outputs), dict(feed))))
            for feed in spec.feeds
        ]
    except Exception:  # its errors share no class; a graph that it refuses is judged without it
        return None


def by_evaluator(spec: Spec, model: onnx.ModelProto) -> list[Values] | None:
    """What the reference evaluator computes, in the types of the graph; None if it cannot."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(model)
            return [
                dict(zip(spec.outputs, map(np.asarray, evaluator.run(None, dict(feed)))))
                for feed in spec.feeds
            ]
    except Exception:  # likewise
        return None
