"""Compiles CUDA C++ for the host, keeps the images on disk, and loads them."""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tenferro_interop._errors import BackendError, CompileError

from .cpu_source import Source, refuse_missing_header, translate
from .cpu_toolchain import (
    INCLUDE,
    Toolchain,
    compiler_report,
    find_toolchain,
    preprocessor_flags,
    translate_options,
)

__all__ = ["HostImage", "HostKernel", "compile_image", "compiler_report"]


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A loaded kernel: the address that runs its blocks, its parameters' words, and its thread limit."""

    name: str
    address: int
    words: tuple[int, ...]
    max_threads: int


class HostImage:
    """A loaded image and its kernels, by plain name and by name expression."""

    def __init__(self, path: Path, data: bytes, *, check: bool, runtime_table: int) -> None:
        self.path = path
        self.check = check
        self._library: ctypes.CDLL | None = _load_private_copy(path, data)
        self._library.tfi_module_init(ctypes.c_void_p(runtime_table))
        self.kernels: Mapping[str, HostKernel] = {kernel.name: kernel for kernel in _read_kernels(self._library)}

    def close(self) -> None:
        """Unload the image; its kernels' addresses are void from then on."""
        library, self._library = self._library, None
        if library is not None:
            _ctypes.dlclose(library._handle)


@dataclass(frozen=True, slots=True)
class _Request:
    """All that decides what an image holds, but for the headers that the source includes."""

    source: str
    filename: str
    name_expressions: tuple[str, ...]
    toolchain: Toolchain
    preprocessing: tuple[str, ...]
    generation: tuple[str, ...]
    check: bool

    def key(self) -> str:
        parts = [self.source, self.filename, *self.name_expressions, "", *self.preprocessing, "", *self.generation]
        parts += [str(self.check), self.toolchain.identity, self.toolchain.version, _prelude_digest(), _cpu_model()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def options(self) -> tuple[str, ...]:
        return (*self.preprocessing, *self.generation)


def compile_image(
    source: str,
    *,
    filename: str = "kernel.cu",
    std: str = "c++17",
    include_paths: Sequence[str] = (),
    defines: Mapping[str, str | None] | None = None,
    extra: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    check: bool = False,
    runtime_table: int,
    cache_dir: Path,
) -> HostImage:
    """Compile CUDA C++ for this host, or load it from `cache_dir` if it was compiled before.

    Raises UnsupportedError for what the CPU device cannot run and when there is no compiler, CompileError with the
    compiler's text when it refuses the source.
    """
    cache_dir.mkdir(parents=True, exist_ok=True)
    toolchain = find_toolchain(cache_dir)
    preprocessing, generation = translate_options(extra)
    request = _Request(
        source,
        filename,
        tuple(name_expressions),
        toolchain,
        (*preprocessor_flags(std, include_paths, defines or {}), *preprocessing),
        (*toolchain.flags(check=check), *generation),
        check,
    )
    path = cache_dir / f"{request.key()}.so"
    data = _read_kept(path)
    if data is None:
        data = _build(request, path)
    return HostImage(path, data, check=check, runtime_table=runtime_table)


def _read_kept(path: Path) -> bytes | None:
    """Return a kept image if it is whole and none of the headers it was made from has changed."""
    try:
        facts = json.loads(path.with_suffix(".json").read_bytes())
        data = path.read_bytes()
        is_whole = hashlib.sha256(data).hexdigest() == facts["sha256"]
        is_current = all(_file_digest(header) == digest for header, digest in facts["headers"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return data if is_whole and is_current else None


def _build(request: _Request, path: Path) -> bytes:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as name:
        directory = Path(name)
        text = _preprocess(request, directory)
        unit = translate(Source(text, str(INCLUDE)), request.name_expressions)
        (directory / "unit.cpp").write_text(unit, encoding="utf-8")
        _compile(request, directory)
        data = (directory / "image.so").read_bytes()
        headers = {header: _file_digest(header) for header in _headers(directory)}
        facts = {"sha256": hashlib.sha256(data).hexdigest(), "headers": headers}
        (directory / "image.json").write_text(json.dumps(facts), encoding="utf-8")
        # The facts last: a reader that sees only one of the two files finds that they disagree, and builds again.
        (directory / "image.so").replace(path)
        (directory / "image.json").replace(path.with_suffix(".json"))
    return data


def _preprocess(request: _Request, directory: Path) -> str:
    text = f"#line 1 {json.dumps(request.filename, ensure_ascii=False)}\n{request.source}\n"
    (directory / "user.cpp").write_text(text, encoding="utf-8")
    output = directory / "user.ii"
    command = [
        *request.toolchain.preprocessor,
        *request.preprocessing,
        "-w",
        "-E",
        "-MD",
        "-MF",
        str(directory / "user.d"),
    ]
    log = _run([*command, str(directory / "user.cpp"), "-o", str(output)], directory, output)
    if log is not None:
        refuse_missing_header(log)
        raise _compile_error(request, log)
    return output.read_text(encoding="utf-8", errors="replace")


def _compile(request: _Request, directory: Path) -> None:
    unit, compiled, output = (directory / name for name in ("unit.cpp", "unit.o", "image.so"))
    standard = [flag for flag in request.preprocessing if flag.startswith("-std=")]
    compiler = request.toolchain.command
    command = [*compiler, *standard, f"-I{INCLUDE}", *request.generation, "-c", str(unit), "-o", str(compiled)]
    log = _run(command, directory, compiled)
    # Linked in a step of its own, since with check mode's flags the driver would add libtsan.
    if log is None:
        log = _run([*compiler, "-shared", "-x", "none", str(compiled), "-o", str(output), "-lm"], directory, output)
    if log is not None:
        raise _compile_error(request, log)


def _run(command: Sequence[str], directory: Path, output: Path) -> str | None:
    """Run the compiler; return None if it wrote its output, else what it said, without our temporary paths."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0 and output.exists():
        return None
    log = (done.stderr + done.stdout).replace(f"{directory}{os.sep}", "")
    return log or f"{command[0]} ended with status {done.returncode}"


def _compile_error(request: _Request, log: str) -> CompileError:
    first = re.search(r"^.*\berror: .*$", log, re.M)
    return CompileError(
        f"the C++ compiler refused {request.filename}: {first[0] if first else log.strip()}",
        op="compile_nvrtc",
        log=log,
        options=request.options(),
    )


def _headers(directory: Path) -> Iterator[str]:
    """Yield the headers that the preprocessor read, other than the prelude's, which are part of every key."""
    rule = (directory / "user.d").read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    for word in re.findall(r"(?:\\ |\S)+", rule.partition(":")[2]):
        header = word.replace("\\ ", " ")
        if Path(header).parent != directory and not header.startswith(str(INCLUDE)):
            yield header


def _file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@cache
def _prelude_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted([*INCLUDE.rglob("*"), INCLUDE.parent / "tfi_signature.h"]):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def _cpu_model() -> str:
    """Return what decides `-march=native`; the first processor stands for all."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            text = file.read(8192)
    except OSError:
        return os.uname().machine
    facts = re.findall(
        r"^(?:vendor_id|model name|cpu family|model|flags|CPU \w+|Features)\s*:.*$", text.split("\n\n")[0], re.M
    )
    return os.uname().machine + "".join(facts)


class _Entry(ctypes.Structure):
    """`tfi_cpu::kernel_entry` of tfi_trampoline.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("blocks", ctypes.c_void_p),
        ("words", ctypes.POINTER(ctypes.c_uint64)),
        ("nwords", ctypes.c_uint64),
        ("max_threads", ctypes.c_uint64),
    )


def _load_private_copy(path: Path, data: bytes) -> ctypes.CDLL:
    """Load the verified bytes under a name of their own: the loader would give two modules of one source one state.

    The copy's name leads the runtime back to the image, whose line table check mode reads (cpu_lines.c).
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise BackendError(f"loading a host image failed: {error}", op="compile_nvrtc", device="cpu") from error
    finally:
        with suppress(OSError):
            os.unlink(name)


def _read_kernels(library: ctypes.CDLL) -> Iterator[HostKernel]:
    address = ctypes.addressof(_Entry.in_dll(library, "tfi_kernels"))
    while (entry := _Entry.from_address(address)).name is not None:
        words = tuple(entry.words[: entry.nwords])
        yield HostKernel(entry.name.decode(), entry.blocks, words, entry.max_threads)
        address += ctypes.sizeof(_Entry)
