# SPDX-License-Identifier: Apache-2.0
"""A child process that checks graphs: seeds, or pickled graphs, come in lines; outcomes go out.

It dies with a graph that crashes; the parent starts another one.
"""

import base64
import json
import pickle
import sys

from tests.random_graphs.check import check
from tests.random_graphs.drawing import draw
from tests.targets import runnable_targets


def main() -> None:
    targets = runnable_targets()
    for line in sys.stdin:
        request = json.loads(line)
        if "seed" in request:
            spec = draw(request["seed"])
        else:
            spec = pickle.loads(base64.b64decode(request["spec"]))
        # Mostly for this machine, the other levels in turns.
        turn = spec.seed % (2 * len(targets))
        outcome = check(spec, targets[turn] if turn < len(targets) else targets[0])
        answer = {
            "kind": outcome.kind, "message": outcome.message, "ops": [n.op for n in spec.nodes],
        }  # fmt: skip
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
