"""Which C++ compiler serves the CPU device, and the flags that NVRTC's options become for it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tenferro_interop._errors import UnsupportedError

INCLUDE = Path(__file__).resolve().parent.parent / "_include" / "cpu"
_OLDEST = {"g++": 12, "clang++": 15}
# `-fno-strict-aliasing`: CUDA code reads float arrays through float4*, and nvcc lets it.
# `-fvisibility=hidden`: two modules with equal kernel names must not share functions or __shared__ arrays.
_FLAGS = (
    "-mcpu=native" if os.uname().machine == "aarch64" else "-march=native",
    "-fPIC", "-w", "-fvisibility=hidden",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fno-strict-aliasing", "-fno-sanitize=undefined",
)  # fmt: skip
_DIALECT = ("-fno-exceptions", "-fno-rtti")  # as NVRTC has it; the headers ask for it too
_GCC_FLAGS = ("-fno-gnu-unique", "-fno-semantic-interposition")
# Instrumentation only: our prelude holds the hooks, and libtsan is never linked.
_CHECKED = ("-O1", "-g", "-DTFI_CHECK", "-fsanitize=thread")
_GCC_CHECKED = ("--param", "tsan-distinguish-volatile=1")
_CLANG_CHECKED = ("-mllvm", "-tsan-distinguish-volatile=1")
_PREDEFINED = ("-D__CUDACC__=1", "-D__CUDACC_RTC__=1", "-D__CUDA_ARCH__=800", "-D__TENFERRO_CPU__=1")
_IGNORED = re.compile(
    r"--?(use_fast_math|ftz|prec-div|prec-sqrt|fmad|fmad=true|restrict|lineinfo|generate-line-info|G|device-debug"
    r"|dopt|arch|gpu-architecture|maxrregcount|ptxas-options|Xptxas|rdc|relocatable-device-code|dc|device-c|dw"
    r"|default-device|device-as-default-execution-space|extra-device-vectorization|w|disable-warnings|minimal"
    r"|(no-)?display-error-number|diag-\w+|split-compile|builtin-(initializer-list|move-forward))(=.*)?$"
)
_WITH_VALUE = {"-D": "-D", "--define-macro": "-D", "-U": "-U", "--undefine-macro": "-U", "-I": "-I",
               "--include-path": "-I", "-include": "-include", "--pre-include": "-include"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler's command line, its version text, and the identity of its binary."""

    command: tuple[str, ...]
    version: str
    identity: str

    @property
    def preprocessor(self) -> tuple[str, ...]:
        """The command that finds C++ headers: `zig cc` has none, `zig c++` would build libc++ when it links."""
        zig = ("cc", "-x", "c++")
        return (*self.command[:-3], "c++") if self.command[-3:] == zig else self.command

    def flags(self, *, check: bool) -> tuple[str, ...]:
        """Return the code generation flags for this compiler."""
        speed = _CHECKED if check else ("-O3",)
        if "clang" in self.version:
            return (*speed, *_DIALECT, *_FLAGS, *(_CLANG_CHECKED if check else ()))
        return (*speed, *_DIALECT, *_FLAGS, *_GCC_FLAGS, *(_GCC_CHECKED if check else ()))


def find_toolchain(cache_dir: Path | None = None) -> Toolchain:
    """Return $TENFERRO_CXX, else a recent g++ or clang++ on PATH, else the ziglang package's compiler.

    Version texts are kept in `cache_dir`, since asking costs more than loading a cached image.
    Raises UnsupportedError when there is none.
    """
    return _find(os.environ.get("TENFERRO_CXX", ""), os.environ.get("PATH", ""), cache_dir)


def compiler_report() -> str:
    """Return one line that names the compiler the CPU device would use."""
    try:
        toolchain = find_toolchain()
    except UnsupportedError as error:
        return str(error)
    return f"{shlex.join(toolchain.command)}: {toolchain.version.splitlines()[0]}"


def preprocessor_flags(std: str, include_paths: Sequence[str], defines: Mapping[str, str | None]) -> list[str]:
    """Return the flags that find headers and define macros; our own headers come first."""
    macros = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in defines.items()]
    return [
        standard_flag(std),
        *_DIALECT,
        f"-I{INCLUDE}",
        *(f"-I{path}" for path in include_paths),
        *_PREDEFINED,
        *macros,
    ]


def standard_flag(std: str) -> str:
    """Return the language flag: C++17 at least, which the trampolines need."""
    year = re.sub(r"\D", "", std)
    return "-std=c++17" if year in {"", "03", "98", "11", "14"} else f"-std=c++{year}"


def translate_options(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return NVRTC options as preprocessor flags and code generation flags.

    Raises UnsupportedError for an option that is neither known nor harmless on the host.
    """
    preprocessor: list[str] = []
    generation: list[str] = []
    rest = iter(options)
    for option in rest:
        if flag := _valued_flag(option, rest):
            preprocessor += flag
        elif re.fullmatch(r"--?fmad=false", option):
            generation.append("-ffp-contract=off")
        elif re.fullmatch(r"--?std=c\+\+\w+", option):
            preprocessor.append(standard_flag(option.partition("=")[2]))
        elif not _IGNORED.match(option):
            raise UnsupportedError(
                f"the NVRTC option {option!r} is not supported on the CPU device", op="compile_nvrtc"
            )
    return preprocessor, generation


def _valued_flag(option: str, rest: Iterator[str]) -> list[str]:
    if option in _WITH_VALUE:
        return _joined(_WITH_VALUE[option], next(rest, ""))
    for name, flag in _WITH_VALUE.items():
        if option.startswith(f"{name}="):
            return _joined(flag, option[len(name) + 1 :])
        if len(name) == 2 and option.startswith(name):
            return _joined(flag, option[2:])
    return []


def _joined(flag: str, value: str) -> list[str]:
    return [flag, value] if flag == "-include" else [flag + value]


@cache
def _find(chosen: str, path: str, cache_dir: Path | None) -> Toolchain:
    if chosen:
        return _identify(tuple(shlex.split(chosen)), cache_dir)
    for name, oldest in _OLDEST.items():
        binary = shutil.which(name, path=path)
        if not binary:
            continue
        toolchain = _identify((binary,), cache_dir)
        if _major(toolchain.version) >= oldest:
            return toolchain
    return _identify(_zig(), cache_dir)


def _zig() -> tuple[str, ...]:
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.submodule_search_locations:
        raise UnsupportedError(
            "the CPU device needs a C++ compiler, got none. Install one with `pip install 'tenferro-interop[cpu]'`, "
            "or name one in the environment variable TENFERRO_CXX (g++ 12, clang++ 15 or later)",
            op="compile_nvrtc",
            device="cpu",
        )
    return (str(Path(package.submodule_search_locations[0]) / "zig"), "cc", "-x", "c++")


def _identify(command: tuple[str, ...], cache_dir: Path | None) -> Toolchain:
    binary = shutil.which(command[0])
    if binary is None:
        raise UnsupportedError(
            f"TENFERRO_CXX names {command[0]!r}, which is not found", op="compile_nvrtc", device="cpu"
        )
    stat = Path(binary).stat()
    identity = hashlib.sha256(f"{command}{binary}{stat.st_mtime_ns}{stat.st_size}".encode()).hexdigest()
    kept = cache_dir / f"compiler-{identity[:24]}.txt" if cache_dir else None
    if kept and kept.exists():
        return Toolchain(command, kept.read_text(encoding="utf-8"), identity)
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    if kept and version:
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(version, encoding="utf-8")
        part.replace(kept)
    return Toolchain(command, version or "unknown version", identity)


def _major(version: str) -> int:
    found = re.search(r"(\d+)\.\d+\.\d+", version)
    return int(found[1]) if found else 0
