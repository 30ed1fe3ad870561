"""NVRTC: CUDA C++ source to a loadable image, with the signature of each kernel in it.

The compiler itself describes the kernels: `_include/tfi_signature.h` is appended to the source, and the lowered name of
one empty probe for each kernel spells its parameters.  When the probes cannot be compiled the source is compiled
alone, so that errors are only ever the user's own.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

from . import _image_cache
from ._cuda_source import included_files, kernel_names, normalise
from ._dtypes import DType
from ._errors import BackendError, CompileError, ValidationError
from ._nvrtc_options import NvrtcOptions
from ._signature import Parameter, Signature, from_words

__all__ = ["CompiledSource", "NvrtcOptions", "compile_cached", "compile_cubin", "nvrtc_version"]

_OP = "compile_nvrtc"
_HEADER = (Path(__file__).parent / "_include" / "tfi_signature.h").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class CompiledSource:
    """An image, the compiler's warnings, and by name expression each kernel's symbol and signature.

    Keys are normalised: `find` takes any spelling, and symbols too.
    """

    image: bytes
    kind: Literal["cubin", "ptx"]
    log: str
    lowered: dict[str, str]
    signatures: dict[str, Signature]

    def find(self, name: str) -> tuple[str, Signature | None] | None:
        """Return the symbol and the signature of a kernel, or None for a name that the compiler was not asked about."""
        wanted = normalise(name)
        for expression, symbol in self.lowered.items():
            if wanted in (expression, symbol):
                return symbol, self.signatures.get(expression)
        return None


def compile_cached(source: str, options: NvrtcOptions, *, arch: str, filename: str = "kernel.cu") -> CompiledSource:
    """Do as `compile_cubin`, but take the result from the disk cache when nothing that it was made from has changed."""
    job = _job(source, options, arch, filename)
    key = _cache_key(job)
    stored = _image_cache.load(key) if key else None
    if stored is not None:
        return _deserialise(stored)
    compiled = _compile(job)
    if key:
        _image_cache.store(key, _serialise(compiled))
    return compiled


def compile_cubin(source: str, options: NvrtcOptions, *, arch: str, filename: str = "kernel.cu") -> CompiledSource:
    """Compile for `options.arch`, or else for `arch`, the device's own; a ``compute_`` architecture gives PTX.

    Raises CompileError with the log, the options and NVRTC's version; BackendError where there is no NVRTC.
    """
    return _compile(_job(source, options, arch, filename))


def nvrtc_version() -> str:
    """Return the version of the NVRTC in use, such as ``13.5``."""
    _, major, minor = _nvrtc().nvrtcVersion()
    return f"{major}.{minor}"


class _Job(NamedTuple):
    """One request, checked; `toolkit` holds the directories that are searched without being asked for."""

    source: str
    filename: str
    arch: str
    options: NvrtcOptions
    toolkit: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The option list as NVRTC gets it."""
        return self.options.arguments(self.arch, self.toolkit)


def _job(source: str, options: NvrtcOptions, arch: str, filename: str) -> _Job:
    _require_text("source", source)
    _require_text("filename", filename)
    toolkit = _toolkit_directories() if re.search(r"#\s*include", source) else ()
    return _Job(source.removeprefix("\ufeff"), filename, options.arch or arch, options, toolkit)


class _Outcome(NamedTuple):
    """What one run of the compiler gave; `failure` is empty after success."""

    failure: str
    log: str
    image: bytes = b""
    lowered: dict[str, str] = {}  # noqa: RUF012  # never mutated: the empty answer of a failed run


def _compile(job: _Job) -> CompiledSource:
    names = _names(job)
    probes = {_PROBE.format(name): name for name in names}
    outcome = _run_pruned(job, f"{job.source}\n{_HEADER}", (*names, *probes)) or _run_unprobed(job, names)
    words = {probes[each]: _words(symbol) for each, symbol in outcome.lowered.items() if each in probes}
    return CompiledSource(
        image=outcome.image,
        kind=_kind(job),
        log=outcome.log,
        lowered={normalise(each): symbol for each, symbol in outcome.lowered.items() if each not in probes},
        signatures={normalise(name): from_words(values) for name, values in words.items()},
    )


_PROBE = "tfi_signature::probe<tfi_signature::of<decltype(+{})>::type>"
_REFUSED_EXPRESSION = re.compile(r'Input name expression was: "(.*)"')


def _names(job: _Job) -> tuple[str, ...]:
    """Return the kernels that the text shows and the expressions that were asked for, each once."""
    every = (*kernel_names(job.source), *job.options.name_expressions)
    return tuple({normalise(name): name for name in every}.values())


def _run_pruned(job: _Job, text: str, expressions: tuple[str, ...]) -> _Outcome | None:
    """Compile, once more without the expressions that the log blames; None if that fails or blames the user's."""
    outcome = _run(job, text, expressions)
    blamed = {normalise(each) for each in _REFUSED_EXPRESSION.findall(outcome.log)}
    if outcome.failure and blamed and blamed.isdisjoint(map(normalise, job.options.name_expressions)):
        outcome = _run(job, text, [each for each in expressions if normalise(each) not in blamed])
    return None if outcome.failure else outcome


def _run_unprobed(job: _Job, names: tuple[str, ...]) -> _Outcome:
    """Compile what the user wrote and nothing else; if that works the kernels' names are still worth having."""
    outcome = _run(job, job.source, job.options.name_expressions)
    if outcome.failure:
        raise _compile_error(job, outcome)
    return _run_pruned(job, job.source, names) or outcome


def _run(job: _Job, text: str, expressions: Sequence[str]) -> _Outcome:
    with _program(text, job.filename) as program:
        for expression in expressions:
            _call("nvrtcAddNameExpression", program, _encode(expression))
        arguments = [_encode(argument) for argument in job.arguments]
        (status,) = _nvrtc().nvrtcCompileProgram(program, len(arguments), arguments)
        log = _read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if int(status):
            return _Outcome(status.name, log)
        image = _read(program, "CUBIN") if _kind(job) == "cubin" else _read(program, "PTX").rstrip(b"\0")
        return _Outcome("", log, image, {each: _lowered(program, each) for each in expressions})


@contextmanager
def _program(text: str, filename: str) -> Iterator[object]:
    program = _call("nvrtcCreateProgram", _encode(text), _encode(filename), 0, [], [])
    try:
        yield program
    finally:
        _nvrtc().nvrtcDestroyProgram(program)


def _encode(text: str) -> bytes:
    """Encode as UTF-8, giving back the bytes that the file system's decoding escaped."""
    return text.encode("utf-8", "surrogateescape")


def _kind(job: _Job) -> Literal["cubin", "ptx"]:
    return "ptx" if job.arch.startswith("compute_") else "cubin"


def _read(program: object, what: str) -> bytes:
    """Fetch one of the program's byte strings, into a bytearray: `bytes` of one letter are shared by all of Python."""
    buffer = bytearray(int(str(_call(f"nvrtcGet{what}Size", program))))
    _call(f"nvrtcGet{what}", program, buffer)
    return bytes(buffer)


def _lowered(program: object, expression: str) -> str:
    symbol = _call("nvrtcGetLoweredName", program, _encode(expression))
    return symbol.decode() if isinstance(symbol, bytes) else str(symbol)


def _words(symbol: str) -> list[int]:
    return [int(word) for word in re.findall(r"Ly(\d+)E", symbol)]


def _call(name: str, *arguments: object) -> object:
    """Call NVRTC and return what it gives beside the status, or raise the status."""
    status, *values = getattr(_nvrtc(), name)(*arguments)
    if int(status):
        raise BackendError(f"{name} must succeed, got {status.name}", op=_OP, code=int(status), name=status.name)
    return values[0] if values else None


@functools.cache
def _nvrtc() -> ModuleType:
    """Import NVRTC's binding on first use, as no other part of the package needs it."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendError(
            f"compiling needs NVRTC, got {error}. Install it with `pip install 'tenferro-interop[cu13]'`", op=_OP
        ) from error
    return nvrtc  # type: ignore[no-any-return]  # the binding has no types


@functools.cache
def _toolkit_directories() -> tuple[str, ...]:
    """Find the headers that come with CUDA; none is fine, as the user may name them."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return ()
    return tuple(path for each in ("cudart", "cccl") if (path := _header_directory(find_nvidia_header_directory, each)))


def _header_directory(find: Callable[[str], str | None], library: str) -> str | None:
    try:
        return find(library)
    except RuntimeError:  # a library that this version of the finder does not know
        return None


def _require_text(argument: str, text: str) -> None:
    """Refuse what C would cut short and what has no bytes."""
    if "\0" in text:
        where = text.index("\0")
        raise ValidationError(f"{argument} must not contain NUL, got one at {where}", op=_OP, argument=argument)
    try:
        _encode(text)
    except UnicodeEncodeError as error:
        raise ValidationError(f"{argument} must be encodable, got {error}", op=_OP, argument=argument) from error


_MISSING_HEADER = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')


def _compile_error(job: _Job, outcome: _Outcome) -> CompileError:
    version, options = nvrtc_version(), list(job.arguments)
    text = f"source {job.filename} must compile, got {outcome.failure} from NVRTC {version} with options {options}"
    missing = _MISSING_HEADER.search(outcome.log)
    hint = (
        f'\nName the directory that holds {missing[1]}: NvrtcOptions(include_paths=("/path/to/include",))'
        if missing
        else ""
    )
    return CompileError(
        f"{text}:\n{outcome.log.rstrip()}{hint}",
        op=_OP, name=outcome.failure, log=outcome.log, options=options, version=version,
    )  # fmt: skip


_FORMAT = "1"
_PRE_INCLUDE = re.compile(r"--?(?:pre-)?include(?:=|$)")


def _cache_key(job: _Job) -> str | None:
    """Digest all that the result depends on; None if a header's name cannot be read from the text."""
    if any(_PRE_INCLUDE.match(option) for option in job.options.extra):
        return None
    directory = Path(job.filename).parent
    headers = included_files(job.source, directory, job.options.include_paths, toolkit=job.toolkit)
    if not headers.is_complete:
        return None
    request = json.dumps([job.filename, job.arguments, job.options.name_expressions, headers.digests])
    return _image_cache.key(_FORMAT, nvrtc_version(), _HEADER, job.source, request)


def _serialise(compiled: CompiledSource) -> bytes:
    rows = {
        name: [signature.source, [dataclasses.asdict(each) for each in signature.parameters]]
        for name, signature in compiled.signatures.items()
    }
    return json.dumps([compiled.kind, compiled.log, compiled.lowered, rows]).encode() + b"\n" + compiled.image


def _deserialise(entry: bytes) -> CompiledSource:
    head, _, image = entry.partition(b"\n")
    kind, log, lowered, rows = json.loads(head)
    signatures = {
        name: Signature(tuple(Parameter(**{**each, "dtype": DType(*each["dtype"])}) for each in parameters), source)
        for name, (source, parameters) in rows.items()
    }
    return CompiledSource(image, kind, log, lowered, signatures)
