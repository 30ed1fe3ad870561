"""How everything here is timed: medians over batches of enqueues, the device drained outside the timed part."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

BATCH = 256
ROUNDS = 40
Loop = Callable[[int], int]  # repeats something, returns the nanoseconds of it all


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds of one call: least, median and greatest over the rounds."""

    least: float
    median: float
    greatest: float

    @classmethod
    def of(cls, samples: list[float]) -> Timing:
        """Summarise samples."""
        return cls(min(samples), statistics.median(samples), max(samples))

    def as_dict(self) -> dict[str, float]:
        """Return the three numbers by name."""
        return {name: round(value, 1) for name, value in asdict(self).items()}


def timed(statement: str, **names: object) -> Loop:
    """Return a loop over a Python statement with these local names, as a user's own loop would run it."""
    parameters = "".join(f", {name}" for name in names)
    source = (
        f"def loop(repeats, clock{parameters}):\n"
        f"    start = clock()\n    for _ in range(repeats):\n        {statement}\n    return clock() - start\n"
    )
    scope: dict[str, Any] = {}
    exec(source, scope)
    return lambda repeats: int(scope["loop"](repeats, time.perf_counter_ns, *names.values()))


def beside(loop: Loop, floor: Loop, drain: Callable[[], object]) -> dict[str, float]:
    """Time a loop and a C loop in turn, batch by batch, so that both see the same clocks; adds the median of ratios."""
    mine, theirs, ratios = [], [], []
    loop(8)
    for _ in range(ROUNDS):
        theirs.append(floor(BATCH) / BATCH)
        drain()
        mine.append(loop(BATCH) / BATCH)
        drain()
        ratios.append(mine[-1] / theirs[-1])
    return {**Timing.of(mine).as_dict(), "floor": statistics.median(theirs), "ratio": statistics.median(ratios)}


def per_batch(run: Loop, drain: Callable[[], object], *, batch: int = BATCH, rounds: int = ROUNDS) -> Timing:
    """Time a loop that runs elsewhere, in C, and reports its own nanoseconds for a whole batch."""
    run(batch)
    drain()
    samples = []
    for _ in range(rounds):
        samples.append(run(batch) / batch)
        drain()
    return Timing.of(samples)
