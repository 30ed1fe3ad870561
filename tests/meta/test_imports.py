"""What `import tenferro_interop` loads: neither frameworks nor CUDA packages, and it works without GPU or driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys

FOREIGN = ("torch", "jax", "jaxlib", "cupy", "numba", "cuda", "tenferro_interop_torch", "tenferro_interop_jax")
# Beyond NumPy's own, the standard library included: 49 when this was written.
MAX_MODULES = 100


def in_bare_process(code: str) -> str:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_after(*imports: str) -> set[str]:
    code = "\n".join(
        [f"import {name}" for name in imports] + ["import sys, json; print(json.dumps(list(sys.modules)))"]
    )
    return set(json.loads(in_bare_process(code)))


def test_import_loads_no_framework() -> None:
    roots = {name.partition(".")[0] for name in modules_after("tenferro_interop")}
    assert roots.isdisjoint(FOREIGN)


def test_import_loads_little_beyond_numpy() -> None:
    assert len(modules_after("numpy", "tenferro_interop") - modules_after("numpy")) <= MAX_MODULES


def test_session_without_gpu_is_one_on_the_cpu() -> None:
    code = "import tenferro_interop as tfi\nwith tfi.session() as s: print(s.device)"
    assert in_bare_process(code) == "cpu\n"


def test_cpu_session_loads_no_framework() -> None:
    code = "import sys, tenferro_interop as tfi\nwith tfi.session('cpu'): print([m for m in sys.modules])"
    loaded = {name.partition(".")[0] for name in json.loads(in_bare_process(code).replace("'", '"'))}
    assert loaded.isdisjoint(FOREIGN)


def test_each_adapter_imports_alone() -> None:
    for name in ("torch", "jax"):
        loaded = modules_after(f"tenferro_interop_{name}")
        assert name in loaded
        assert {"torch", "jax"} - {name} - loaded == {"torch", "jax"} - {name}
