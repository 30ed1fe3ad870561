"""What does each check cost?  One launch that enqueues nothing, by builds of the core that each leave one check out.

Not: what the driver's call costs, or conversion and packing, which no launch can do without.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NATIVE = Path(__file__).resolve().parent.parent / "native"
ROUNDS = 3
_TIMED = """
import importlib.abc, importlib.util, json, sys, torch

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        found = name == "tenferro_interop._core"
        return importlib.util.spec_from_file_location(name, LIBRARY) if found else None

sys.meta_path.insert(0, Finder())
import tenferro_interop as tfi
from benchmarks._kernels import AXPY
from benchmarks._timing import timed
device = "cuda" if torch.cuda.is_available() else "cpu"
x, y = torch.zeros(256, device=device), torch.zeros(256, device=device)
with tfi.session(like=x) as s:
    kernel, config = s.compile_nvrtc(AXPY).function("axpy"), tfi.LaunchConfig.flat(0)
    loop = timed("s.launch(kernel, config, args)", s=s, kernel=kernel, config=config, args=[2.0, x, y, 256])
    loop(1000)
    print(json.dumps(min(loop(1000) / 1000 for _ in range(200))))
"""


def run(results: dict[str, dict[str, float]]) -> None:
    """Add the cost of each check: all of them compiled in, less a build without that one (medians of processes)."""
    names = dict(re.findall(r"^  (\w+) = !\(TFI_WITHOUT & (\d+)\)", (NATIVE / "checks.h").read_text(), re.MULTILINE))
    with tempfile.TemporaryDirectory() as folder:
        masks = {"all checks": 0, "no checks": sum(map(int, names.values())), **{n: int(b) for n, b in names.items()}}
        libraries = _build(Path(folder), masks)
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
            samples = {name: list(pool.map(_time, [library] * ROUNDS)) for name, library in libraries.items()}
    medians = {name: statistics.median(values) for name, values in samples.items()}
    results["checked launch of nothing"] = {"median": round(medians["all checks"], 1)}
    results["the same without any check"] = {"median": round(medians["no checks"], 1)}
    for name in names:
        label = name.lower().replace("_", " ")
        results[f"cost of: {label}"] = {"median": round(medians["all checks"] - medians[name], 1)}


def _build(folder: Path, masks: dict[str, int]) -> dict[str, Path]:
    """Translate once, compile once for each mask."""
    core = folder / "core.c"
    translate = [sys.executable, "-m", "cython", "-3", str(NATIVE / "core.pyx"), "--module-name",
                 "tenferro_interop._core", "--output-file", str(core)]  # fmt: skip
    subprocess.run(translate, check=True)
    sources = [str(path) for path in (*NATIVE.glob("*.c"), *NATIVE.glob("*.S"))]

    def compiled(mask: int) -> Path:
        library = folder / f"core{mask}.so"
        flags = ["-O2", "-std=gnu11", "-fPIC", "-shared", "-w", "-fvisibility=hidden", "-pthread", "-fno-plt"]
        include = [f"-I{sysconfig.get_paths()['include']}", f"-I{NATIVE}"]
        command = [
            "gcc",
            *flags,
            f"-DTFI_WITHOUT={mask}",
            *include,
            str(core),
            *sources,
            "-o",
            str(library),
            "-ldl",
            "-lm",
        ]
        subprocess.run(command, check=True)
        return library

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(masks, pool.map(compiled, masks.values()), strict=True))


def _time(library: Path) -> float:
    code = f"LIBRARY = {str(library)!r}\n{_TIMED}"
    root = str(NATIVE.parent)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root)
    return float(json.loads(done.stdout))
