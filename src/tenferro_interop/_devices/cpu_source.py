"""Turns preprocessed CUDA C++ into the translation unit that the host compiler takes.

Everything here reads the output of the preprocessor, so macros, comments and inactive `#if` branches are gone, and
line markers tell the user's files from system headers and from ours.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenferro_interop._errors import UnsupportedError

MAX_BLOCK_THREADS = 1024

_MARKER = re.compile(r'^#[ \t]*(?:line[ \t]+)?(\d+)[ \t]+"((?:\\.|[^"\\\n])*)"([ \t\d]*)$', re.M)
_LITERAL = re.compile(
    r'R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)(?:u8|[uUL])?\'(?:\\.|[^\'\\\n])+\'', re.S
)
_WAITING = re.compile(r"__syncthreads|__syncwarp|_sync\b|__nanosleep|cooperative_groups")
_REFUSED: tuple[tuple[str, str, str], ...] = (
    (r"\b(?:asm|__asm__|__asm)\b", "inline PTX (asm)", "Guard it with #ifndef __TENFERRO_CPU__."),
    (r"<<<", "a kernel launch from device code", "Launch the second kernel from Python."),
    (r"\bwmma\s*::|\bnvcuda\s*::", "a tensor-core operation (wmma)", "Write the product as a loop."),
    (r"\b(?:tex[123]D|texCubemap|surf[123]D)\w*|\bcuda(?:Texture|Surface)Object_t\b", "a texture or surface",
     "Read the array through a pointer."),
    (r"\b(?:this_grid|grid_group|this_multi_grid)\b", "grid-wide synchronisation", "Use two launches."),
    (r"\b(?:this_cluster|cluster_group|__cluster_dims__)\b", "a thread block cluster", "Use shared memory."),
    (r"\b__managed__\b", "__managed__ memory", "Pass the array as an argument."),
    (r"\bcuda\s*::\s*(?:barrier|pipeline|memcpy_async)\b|\b__pipeline_\w+", "an asynchronous copy or barrier object",
     "Copy with plain loads and __syncthreads()."),
    (r"\bcuda(?:Malloc|Free|Memcpy|Memset|Launch|Device|Stream|Event)\w*\s*\(", "a CUDA runtime call",
     "Call the runtime from Python."),
)  # fmt: skip
_REFUSED_HEADERS = re.compile(r"mma\.h|cub/|thrust/|cutlass/|cute/|cuda/(?:barrier|pipeline)|cuda_pipeline")


@dataclass(frozen=True, slots=True)
class _Region:
    """A stretch of text between two line markers."""

    start: int
    end: int
    file: str
    first_line: int
    is_user: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """A `__global__` function as declared in the source, with its namespaces in its name."""

    name: str
    is_template: bool
    is_defined: bool
    max_threads: int


class Source:
    """Preprocessed text, and beside it the same text with all that is not the user's code blanked out."""

    def __init__(self, text: str, own_directory: str) -> None:
        self.text = text
        self._regions = list(_regions(text, own_directory))
        self.code = _user_code(text, self._regions)

    def place(self, position: int) -> str:
        """Return `file:line` of a position."""
        for region in reversed(self._regions):
            if region.start <= position:
                line = region.first_line + self.text.count("\n", region.start, position)
                return f"{region.file}:{line}"
        return f"<source>:{self.text.count(chr(10), 0, position) + 1}"


def translate(source: Source, name_expressions: Sequence[str]) -> str:
    """Return the translation unit: prelude, rewritten source, one trampoline per kernel.

    Raises UnsupportedError, naming file and line, for what the CPU device cannot run.
    """
    refuse_unsupported(source)
    kernels = find_kernels(source.code)
    body, has_namespace_shared = rewrite_dynamic_shared(source)
    body = reorder_specifiers(body)
    lines = [] if _WAITING.search(source.code) else ["#define TFI_NO_WAITING 1"]
    if has_namespace_shared:
        lines.append("#define TFI_SHARED_AT_NAMESPACE_SCOPE 1")
    lines += ['#include "tfi_prelude.h"', body, '#line 1 "<name expressions>"']
    return "\n".join([*lines, _kernel_table(kernels, name_expressions), ""])


def refuse_unsupported(source: Source) -> None:
    """Raise UnsupportedError at the first use of what only a GPU has."""
    for pattern, what, hint in _REFUSED:
        found = re.search(pattern, source.code)
        if found:
            place = source.place(found.start())
            raise UnsupportedError(
                f"{place}: {what} is not supported on the CPU device. {hint}", op="compile_nvrtc", device="cpu"
            )


def refuse_missing_header(log: str) -> None:
    """Raise UnsupportedError if the preprocessor missed a header that reaches for GPU instructions."""
    found = re.search(r"^(\S+?:\d+).*?(?:error: '?([\w./]+)'?(?:: No such| file not found))", log, re.M)
    if found and _REFUSED_HEADERS.match(found[2]):
        raise UnsupportedError(
            f"{found[1]}: the header <{found[2]}> is not supported on the CPU device. "
            "It is made of GPU instructions; guard it with #ifndef __TENFERRO_CPU__.",
            op="compile_nvrtc",
            device="cpu",
        )


def find_kernels(code: str) -> list[Kernel]:
    """Return every declaration of a kernel at namespace scope, in order."""
    scopes: list[str | None] = []
    found: list[Kernel] = []
    boundary = 0
    for token in re.finditer(r"[{};]|\b__global__\b", code):
        head = code[boundary : token.start()]
        if token[0] == "__global__":
            if None not in scopes:
                found += _read_kernel(code, token.end(), head, [name for name in scopes if name])
            continue
        boundary = token.end()
        if token[0] == "{":
            scopes.append(_scope_name(head))
        elif token[0] == "}" and scopes:
            scopes.pop()
    return found


def rewrite_dynamic_shared(source: Source) -> tuple[str, bool]:
    """Give `extern __shared__ T x[]` a meaning on the host; tell whether one stood outside all functions."""
    pieces: list[str] = []
    end, is_any_outside = 0, False
    for found in re.finditer(r"\b(?:extern\s+__shared__|__shared__\s+extern)\b([^;{}]*);", source.code):
        is_outside = None not in _scopes_at(source.code, found.start())
        arrays = _shared_arrays(source.text[found.start(1) : found.end(1)], is_outside=is_outside)
        if arrays is None:
            continue
        is_any_outside |= is_outside
        newlines = "\n" * source.text.count("\n", found.start(), found.end())
        pieces += [source.text[end : found.start()], arrays, newlines]
        end = found.end()
    return "".join([*pieces, source.text[end:]]), is_any_outside


def reorder_specifiers(text: str) -> str:
    """Undo what nvcc takes and host compilers refuse: `inline` given twice, alignas after __shared__."""
    inline, other = r"\b(?:inline|__inline__|__inline)\b", r"(?:\s+(?:static|constexpr|__device__|__host__))*"
    text = re.sub(rf"{inline}({other}\s+(?:__forceinline__|__global__)\b)", r"\1", text)
    text = re.sub(rf"(\b(?:__forceinline__|__global__){other})\s+{inline}", r"\1", text)
    alignment = r"alignas\s*\((?:[^()]|\([^()]*\))*\)\s*"
    return re.sub(rf"\b((?:static\s+)?__shared__\s+)({alignment})", r"\2\1", text)


def _regions(text: str, own_directory: str) -> Iterator[_Region]:
    markers = list(_MARKER.finditer(text))
    for marker, following in zip(markers, [*markers[1:], None], strict=True):
        end = following.start() if following else len(text)
        is_system = "3" in marker[3].split()
        is_user = not (is_system or marker[2].startswith((own_directory, "<")))
        yield _Region(marker.end() + 1, end, marker[2], int(marker[1]), is_user)


def _user_code(text: str, regions: Sequence[_Region]) -> str:
    pieces: list[str] = []
    end = 0
    for region in regions:
        pieces.append(_blank(text[end : region.start]))
        body = text[region.start : region.end]
        pieces.append(_LITERAL.sub(_empty_literal, body) if region.is_user else _blank(body))
        end = max(region.end, region.start)
    if not regions:
        return _LITERAL.sub(_empty_literal, text)
    return "".join(pieces)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _empty_literal(literal: re.Match[str]) -> str:
    return '"' + _blank(literal[0][1:-1]) + '"'


def _scope_name(head: str) -> str | None:
    """Return the namespace that a brace opens, "" for `extern "C"` and unnamed ones, None for all other scopes."""
    if re.search(r'\bextern\s*"\s*"\s*$', head):
        return ""
    namespace = re.search(r"\bnamespace\s+([\w:\s]*)$", head)
    return namespace[1].strip() if namespace else None


def _scopes_at(code: str, position: int) -> list[str | None]:
    scopes: list[str | None] = []
    boundary = 0
    for token in re.finditer(r"[{};]", code[:position]):
        if token[0] == "{":
            scopes.append(_scope_name(code[boundary : token.start()]))
        elif token[0] == "}" and scopes:
            scopes.pop()
        boundary = token.end()
    return scopes


def _read_kernel(code: str, position: int, head: str, namespaces: Sequence[str]) -> list[Kernel]:
    bounds = head
    while word := re.compile(r"\s*(\w+)\s*").match(code, position):
        position = word.end()
        if code[position : position + 1] != "(":
            continue
        after = _after_parenthesis(code, position)
        if word[1].startswith("__"):
            bounds += word[1] + code[position:after]
            position = after
            continue
        is_defined = re.compile(r"[^;{]*\{").match(code, after) is not None
        name = "::".join([*namespaces, word[1]])
        return [Kernel(name, re.search(r"\btemplate\b", head) is not None, is_defined, _launch_bound(bounds))]
    return []


def _after_parenthesis(code: str, position: int) -> int:
    depth = 0
    for parenthesis in re.compile(r"[()]").finditer(code, position):
        depth += 1 if parenthesis[0] == "(" else -1
        if depth == 0:
            return parenthesis.end()
    return len(code)


def _launch_bound(text: str) -> int:
    """Return the thread limit that the source declares as a number, 1024 if it is none or more than that."""
    found = re.search(r"__launch_bounds__\s*\(\s*(\d+)\s*[,)]", text)
    return min(int(found[1]), MAX_BLOCK_THREADS) if found else MAX_BLOCK_THREADS


def _shared_arrays(declaration: str, *, is_outside: bool) -> str | None:
    alignment = r"\b(?:__align__|__builtin_align__|alignas|__attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    plain = re.sub(r"\s+", " ", re.sub(alignment, " ", declaration)).strip()
    split = re.match(r"(.+?)\s*(\b\w+ ?\[ ?\].*)$", plain)
    if not split:
        return None
    return " ".join(_shared_array(split[1], array.strip(), is_outside=is_outside) for array in split[2].split(","))


def _shared_array(element: str, array: str, *, is_outside: bool) -> str:
    name, extents = array[: array.index("[")].strip(), array[array.index("[") :]
    if is_outside:
        return f'extern __thread {element} {name}{extents} __asm__("tfi_dynamic_shared");'
    return f"{element} (&{name}){extents} = *({element} (*){extents})tfi_cpu::dynamic_shared();"


def _kernel_table(kernels: Sequence[Kernel], name_expressions: Sequence[str]) -> str:
    """Return the module's table: kernels that their plain name finds, then the caller's name expressions."""
    definitions = Counter(kernel.name for kernel in kernels if kernel.is_defined)
    templates = {kernel.name for kernel in kernels if kernel.is_template}
    plain = [name for name, count in definitions.items() if count == 1 and name not in templates]
    limits = {kernel.name: MAX_BLOCK_THREADS for kernel in kernels}
    for kernel in kernels:
        limits[kernel.name] = min(limits[kernel.name], kernel.max_threads)
    rows = []
    for expression in dict.fromkeys([*plain, *name_expressions]):
        base = re.sub(r"^.*\)|[\s&]|<.*$", "", expression)
        rows.append(f"TFI_KERNEL({json.dumps(expression)}, {limits.get(base, MAX_BLOCK_THREADS)}, {expression})")
    return "\n".join(["TFI_MODULE(", *rows, ")"])
