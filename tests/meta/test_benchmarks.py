"""Benchmarks that need no GPU run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_host_cost_is_measured_without_a_gpu() -> None:
    command = [sys.executable, "-m", "benchmarks.bench_host"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    figures = [float(line.split(" ns")[0].split()[-1]) for line in done.stdout.splitlines()]
    assert len(figures) == 3
    assert min(figures) > 0
