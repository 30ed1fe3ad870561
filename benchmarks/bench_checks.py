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
BATCH, ROUNDS = 1000, 60
_LOOPS = """
import importlib.abc, importlib.util, json, sys, torch
from benchmarks._kernels import AXPY
from benchmarks._timing import timed

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        found = name == "tenferro_interop._core"
        return importlib.util.spec_from_file_location(name, self.library) if found else None

def loop_of(library):
    for name in [name for name in sys.modules if name.startswith("tenferro_interop")]:
        del sys.modules[name]
    finder.library = library
    import tenferro_interop as tfi
    s = tfi.session(like=x).__enter__()
    kernel, config = s.compile_nvrtc(AXPY).function("axpy"), tfi.LaunchConfig.flat(0)
    return timed("s.launch(kernel, config, args)", s=s, kernel=kernel, config=config, args=[2.0, x, y, 256])

finder = Finder()
sys.meta_path.insert(0, finder)
device = "cuda" if torch.cuda.is_available() else "cpu"
x, y = torch.zeros(256, device=device), torch.zeros(256, device=device)
loops = {name: loop_of(library) for name, library in LIBRARIES.items()}
samples = {name: [] for name in loops}
for _ in range(ROUNDS):
    for name, loop in loops.items():
        samples[name].append(loop(BATCH) / BATCH)
print(json.dumps(samples))
"""


def run(results: dict[str, dict[str, float]]) -> None:
    """Add the cost of each check: all of them compiled in, less a build without that one (medians, timed in turn)."""
    names = dict(re.findall(r"^  (\w+) = !\(TFI_WITHOUT & (\d+)\)", (NATIVE / "checks.h").read_text(), re.MULTILINE))
    with tempfile.TemporaryDirectory() as folder:
        masks = {"all checks": 0, "no checks": sum(map(int, names.values())), **{n: int(b) for n, b in names.items()}}
        libraries = _build(Path(folder), masks)
        samples = _time(libraries)
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


def _time(libraries: dict[str, Path]) -> dict[str, list[float]]:
    """Time all builds in turn, in one process, so that they see the same clocks."""
    names = {"LIBRARIES": {name: str(path) for name, path in libraries.items()}, "BATCH": BATCH, "ROUNDS": ROUNDS}
    code = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + _LOOPS
    root = str(NATIVE.parent)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root)
    samples: dict[str, list[float]] = json.loads(done.stdout)
    return samples
