"""Run every benchmark on the GPU, print the ratio table, and write JSON and a plot."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import platform
from pathlib import Path

import torch

import tenferro_interop as tfi

from . import bench_checks, bench_compile, bench_intake, bench_launch, bench_threads, bench_torch_op
from ._report import plot, table


def _machine() -> dict[str, str]:
    with tfi.session("cuda") as s:
        device = s.device
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": torch.cuda.get_device_name(0),
        "device": device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
    }


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for benchmarks.json and launch.svg")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, float]] = {}
    operators: dict[str, dict[str, float]] = {}
    document = {"machine": _machine(), "unit": "ns", "results": results, "torch operators": operators}
    parts = (
        functools.partial(bench_launch.run, results, with_peers=not arguments.no_peers),
        functools.partial(bench_torch_op.run, operators),
        *(functools.partial(part.run, results) for part in (bench_intake, bench_compile, bench_threads, bench_checks)),
    )
    for part in parts:
        part()
        (arguments.out / "benchmarks.json").write_text(json.dumps(document, indent=1) + "\n")
    plot(results, arguments.out / "launch.svg")
    print(table(results))
    print("\nPyTorch operators; the ratio is to torch.mul\n")
    print(table(operators))


if __name__ == "__main__":
    main()
