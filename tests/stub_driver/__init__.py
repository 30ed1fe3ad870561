"""A driver that runs nothing: builds `driver.c` as libcuda.so.1 and runs programs on top of it.

A program sees one GPU of compute capability 9.0.  It reads what the driver was asked with `log()`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SOURCE = Path(__file__).parent / "driver.c"
PRELUDE = '''
import ctypes
import tenferro_interop as tfi

stub = ctypes.CDLL("libcuda.so.1")
stub.stub_log.restype = ctypes.c_char_p

def log():
    """Return and forget the lines that the driver wrote down."""
    lines = stub.stub_log().decode().splitlines()
    stub.stub_clear()
    return lines

def declare(name, *sizes):
    """Say the sizes of a kernel's parameters, so that the driver reports them and writes down the arguments."""
    stub.stub_declare(name.encode(), len(sizes), (ctypes.c_uint64 * max(len(sizes), 1))(*sizes))

def capture(stream):
    """Let a stream record a graph; 0 ends it."""
    stub.stub_capture(ctypes.c_uint64(stream))

def fail(function, status, calls=1):
    """Let a driver function fail that many times."""
    stub.stub_fail(function.encode(), status, calls)
'''


def build(folder: Path) -> Path:
    """Compile the driver into `folder`, which belongs on LD_LIBRARY_PATH then."""
    library = folder / "libcuda.so.1"
    if not library.exists():
        compiler = [shutil.which("gcc") or shutil.which("cc")]
        if compiler == [None]:
            compiler = [sys.executable, "-m", "ziglang", "cc"]
        command = [*compiler, "-O2", "-shared", "-fPIC", "-w", str(SOURCE), "-o", f"{library}.tmp", "-ldl"]
        subprocess.run(command, check=True)
        os.replace(f"{library}.tmp", library)
    return folder


def run(program: str, folder: Path, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a program, the prelude before it, in a process that finds the stub as its driver."""
    path = os.pathsep.join(filter(None, [str(build(folder)), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": path}
    code = PRELUDE + textwrap.dedent(program)
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
        check=False,
        cwd=tempfile.gettempdir(),
    )
