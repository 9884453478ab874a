# SPDX-License-Identifier: Apache-2.0
"""``tilewright tune``: find faster schedules for the kernels of a model, and keep them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.arguments import (
    CacheDirOption,
    ConstantDefaultsOption,
    DebugOption,
    JsonOption,
    NoCacheOption,
    Numerics,
    NumericsOption,
    QuietOption,
    RecordsOption,
    ShapeOption,
    SizeOption,
    UncheckedIndicesOption,
    check_no_artifact,
    check_no_input,
    parse_shapes,
    parse_sizes,
)
from tilewright.cli.progress import progress_display
from tilewright.cli.terminal import INTERRUPTED, command, fail, say, say_json, say_table, sizes_text

if TYPE_CHECKING:
    from tilewright.autotune.tuner import Outcome

EXAMPLES = """\b
Examples:
  tilewright tune model.onnx --trials 200
  tilewright tune model.onnx --size batch=32
  tilewright tune model.onnx --shape x=8,3,224,224 --seed 1 --json
  tilewright tune model.onnx --records model.sqlite
  tilewright compile model.onnx --records model.sqlite
"""


@command
def tune_model(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")],
    trials: Annotated[
        int,
        typer.Option(
            "--trials",
            metavar="N",
            min=0,
            help="How many schedules to try; with 0 only the known ones are measured anew.",
        ),
    ] = 200,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="What to tune for, as for 'compile'; this machine must be able to run it.",
        ),
    ] = "native",
    shape: ShapeOption = None,
    size: SizeOption = None,
    numerics: NumericsOption = Numerics.default,
    unchecked_indices: UncheckedIndicesOption = False,
    constant_defaults: ConstantDefaultsOption = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Decides which schedules are tried.")
    ] = 0,
    records: RecordsOption = None,
    no_cache: NoCacheOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Find faster schedules for a model.

    Schedules of its kernels are measured on this machine. What is found is kept at once, and
    'compile' uses it from then on: tune with the same options as you compile. Ctrl-C ends the work
    early. Each schedule is proven before it runs, and must compute what the default one does.
    """
    check_no_artifact(model)
    shapes, sizes = parse_shapes(shape), parse_sizes(size)
    check_no_input(records, model)
    from tilewright.api import CompileOptions, choose_target
    from tilewright.autotune.records import ScheduleRecords
    from tilewright.tuning import make_tuner, tuning_job

    options = CompileOptions(
        numerics.value,
        cache=not no_cache,
        cache_dir=cache_dir,
        unchecked_indices=unchecked_indices,
        constant_defaults=constant_defaults,
    )
    chosen = choose_target(target)
    interrupted = False
    with ScheduleRecords(records) as kept:
        with progress_display(quiet) as progress:
            tuner = make_tuner(chosen, kept, options, seed=seed, progress=progress)
            job = tuning_job(str(model), chosen, shapes, options, sizes)
            try:
                tuner.tune(job.tasks, trials)
            except KeyboardInterrupt:
                interrupted = True
        path = kept.path
    outcomes = sorted(tuner.outcomes, key=lambda o: -o.baseline_ns * o.launches)
    if json:
        say_json(_as_json(outcomes, str(chosen), seed, path, job.sizes))
    elif outcomes:
        _say_outcomes(outcomes, path, job.sizes)
    if interrupted:
        fail("Interrupted. What was found until then is kept.", INTERRUPTED)


def _say_outcomes(outcomes: "list[Outcome]", path: Path, sizes: dict[str, int]) -> None:
    say_table(
        ("kernel", "launches", "default us", "best us", "gain", "trials", "failed", "origin"),
        [
            (
                o.kernel,
                str(o.launches),
                f"{1e-3 * o.baseline_ns:.2f}",
                f"{1e-3 * o.best_ns:.2f}",
                f"{o.gain:.2f}",
                str(o.trials),
                str(o.failed),
                o.origin,
            )
            for o in outcomes
        ],
        right="launches,default us,best us,gain,trials,failed",
    )
    if sizes:
        say(f"Measured at {sizes_text(sizes)}; --size chooses other sizes.")
    for text in _changes(outcomes):
        say(text)
    better = sum(bool(o.schedule) for o in outcomes)
    if not better:
        say("No schedule is known that is better than the default one.")
        return
    before, after = _totals(outcomes)
    say(
        f"{better} of {len(outcomes)} kernels have a better schedule, kept in '{path}': all "
        f"launches together take {1e-3 * after:.1f} us instead of {1e-3 * before:.1f} us."
    )


def _changes(outcomes: "list[Outcome]") -> list[str]:
    """How the schedules on record compare with what was measured now."""
    trials = sum(o.trials for o in outcomes)
    new = sum(bool(o.schedule) and o.record != "confirmed" for o in outcomes)
    confirmed = sum(o.record == "confirmed" for o in outcomes)
    forgotten = sum(o.record == "forgotten" for o in outcomes)
    texts = [
        f"{trials} trials found a better schedule than was known for {new} kernels."
        if trials
        else "Nothing new was tried: the default schedules and those on record were measured."
    ]
    if confirmed:
        texts.append(f"{confirmed} schedules on record are still the best that is known.")
    if forgotten:
        texts.append(
            f"{forgotten} schedules on record were no better than the default ones now; they are "
            "forgotten."
        )
    return texts


def _totals(outcomes: "list[Outcome]") -> tuple[float, float]:
    """Nanoseconds of all launches, under the default schedules and under the best ones."""
    before = sum(o.launches * o.baseline_ns for o in outcomes)
    return before, sum(o.launches * o.best_ns for o in outcomes)


def _as_json(
    outcomes: "list[Outcome]", target: str, seed: int, path: Path, sizes: dict[str, int]
) -> dict[str, Any]:
    before, after = _totals(outcomes)
    return {
        "target": target,
        "seed": seed,
        "records": str(path),
        "sizes": sizes,
        "trials": sum(o.trials for o in outcomes),
        "baseline_nanoseconds": before,
        "best_nanoseconds": after,
        "kernels": [
            {
                "name": o.kernel,
                "origin": o.origin,
                "launches": o.launches,
                "template": o.template,
                "baseline_nanoseconds": o.baseline_ns,
                "best_nanoseconds": o.best_ns,
                "gain": o.gain,
                "schedule": o.schedule or None,
                "record": o.record or None,
                "trials": o.trials,
                "failed": o.failed,
            }
            for o in outcomes
        ],
    }
