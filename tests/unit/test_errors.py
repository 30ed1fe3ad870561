"""The texts and the tree of errors: texts are pinned here alone, other tests look at classes and attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from error_texts import ONE, SOURCE, TEXTS, X, Y
from support import in_subprocess

import tenferro_interop as tfi
from tenferro_interop import LaunchConfig, _core, _errors


@pytest.fixture
def cpu() -> Iterator[tfi.Session]:
    with tfi.session("cpu") as s:
        yield s


@pytest.mark.parametrize("case", TEXTS)
def test_text(cpu: tfi.Session, case: str):
    call, cls, text = TEXTS[case]
    module = cpu.compile_nvrtc(SOURCE)
    with pytest.raises(cls) as error:
        call(cpu, module)
    assert (type(error.value), str(error.value)) == (cls, text)


def test_text_of_a_compiler_error_is_the_compilers(cpu: tfi.Session):
    with pytest.raises(tfi.CompileError) as error:
        cpu.compile_nvrtc("this is no C++")
    assert re.match(r"compile_nvrtc: the C\+\+ compiler refused kernel\.cu: kernel\.cu:1:1: error: ", str(error.value))
    assert error.value.log.strip()


def test_text_of_an_allocation_that_cannot_be_had(cpu: tfi.Session):
    with pytest.raises(tfi.BackendError) as error:
        cpu.alloc_bytes(2**62)
    assert str(error.value) == f"alloc: allocation of {2**62} bytes failed"


def test_text_of_a_forked_child():
    done = in_subprocess("""
        import os
        import tenferro_interop as tfi
        s = tfi.session("cpu")
        if os.fork() == 0:
            try:
                s.synchronize()
            except tfi.RuntimeStateError as error:
                print(str(error).replace(str(os.getppid()), "PARENT"), flush=True)
            os._exit(0)
        os.wait()
        s.close()
    """)
    assert done.stdout == (
        "synchronize: session must be used in the process that opened it (pid PARENT), got a forked child. Start "
        "children with the 'spawn' method\n"
    ), done.stderr


class Stray(_core.Kernel):
    """A kernel of another runtime, or one of which nothing is known."""

    name = "stray"
    signature = None

    def __init__(self, runtime: Any) -> None:
        self._configure(runtime, 0, None, False, False)
        self._limit((1, 1, 1), (1, 1, 1), 1, 0, 0, False, False)


class Elsewhere:
    name = "cuda:7"


def test_text_of_a_function_of_another_device(cpu: tfi.Session):
    with pytest.raises(tfi.RuntimeStateError) as error:
        cpu.launch(Stray(Elsewhere()), ONE, [])
    assert str(error.value) == (
        "launch: kernel 'stray' must be loaded on cpu, got one loaded on cuda:7. Compile or load it in this session"
    )


def test_text_of_an_argument_that_does_not_say_its_type(cpu: tfi.Session):
    with pytest.raises(tfi.SignatureError) as error:
        cpu.launch(Stray(cpu.runtime), ONE, [2.0])
    assert str(error.value) == (
        "launch: kernel 'stray' argument 0 must say its type, for the image does not, got float. Pass `s.tensor(x)`, "
        "`s.tensor_mut(x)` or `KernelArg.i32(n)`, or give `module.function(name, signature=...)`"
    )


GPU_TEXTS: dict[str, tuple[Callable[[tfi.Session], Any], type[tfi.TenferroError], str]] = {
    "host array": (
        lambda s: s.tensor(X),
        tfi.RuntimeStateError,
        r"tensor: tensor must be on cuda:0, got cpu\. .*",
    ),
    "no such device": (
        lambda s: tfi.session("cuda:99"),
        tfi.ValidationError,
        r"session: device must be below the \d+ visible GPUs, got cuda:99",
    ),
    "bare int stream": (
        lambda s: tfi.session("cuda", stream=5),
        tfi.ValidationError,
        r"session: stream must be a stream object, got the int 5\. Pass `StreamRef\.from_handle\(5\)` if you vouch .*",
    ),
    "no stream": (
        lambda s: tfi.session("cuda", stream="main"),
        tfi.ValidationError,
        r"session: stream must offer __cuda_stream__, got builtins\.str",
    ),
    "no image": (
        lambda s: s.load_cubin(b"no image"),
        tfi.ValidationError,
        r"load_cubin: cubin must be a whole ELF64 or fatbin image, got 8 bytes starting b'no i'\. Pass the .*",
    ),
    "bad PTX": (
        lambda s: s.load_ptx(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { nonsense; }"),
        tfi.BackendError,
        r"load_ptx: the driver reported CUDA_ERROR_INVALID_PTX \(218\): .*",
    ),
    "grid that waits": (
        lambda s: s.launch(
            s.compile_nvrtc(
                "#include <cooperative_groups.h>\n"
                'extern "C" __global__ void waits() { cooperative_groups::this_grid().sync(); }'
            ).function("waits"),
            ONE,
            [],
        ),
        tfi.ValidationError,
        r"launch: kernel 'waits' waits for its whole grid and must be launched with "
        r"`LaunchConfig\(\.\.\., cooperative=True\)`, got a plain launch",
    ),
    "cluster": (
        lambda s: s.launch(
            s.compile_nvrtc('extern "C" __global__ void __cluster_dims__(2, 1, 1) pairs() {}').function("pairs"),
            LaunchConfig(2, 1),
            [],
        ),
        tfi.ValidationError,
        r"launch: kernel 'pairs' was compiled for clusters of \(2, 1, 1\) and must be launched with "
        r"`LaunchConfig\(\.\.\., cluster=\(2, 1, 1\)\)`, got cluster None",
    ),
    "out of memory": (
        lambda s: s.alloc_bytes(2**45),
        tfi.BackendError,
        r"alloc: the driver reported CUDA_ERROR_OUT_OF_MEMORY \(2\): .*",
    ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("case", GPU_TEXTS)
def test_text_on_a_gpu(case: str):
    call, cls, text = GPU_TEXTS[case]
    with tfi.session("cuda") as s, pytest.raises(cls) as error:
        call(s)
    assert type(error.value) is cls
    assert re.fullmatch(text, str(error.value), re.DOTALL), str(error.value)


# The tree


@pytest.mark.parametrize(
    ("cls", "bases"),
    [
        (tfi.ValidationError, (tfi.TenferroError, ValueError)),
        (tfi.DTypeError, (tfi.ValidationError, TypeError)),
        (tfi.LayoutError, (tfi.ValidationError,)),
        (tfi.AliasError, (tfi.ValidationError,)),
        (tfi.SignatureError, (tfi.ValidationError, TypeError)),
        (tfi.ScalarRangeError, (tfi.SignatureError, OverflowError)),
        (tfi.ExportError, (tfi.ValidationError, BufferError)),
        (tfi.RuntimeStateError, (tfi.TenferroError, RuntimeError)),
        (tfi.BackendError, (tfi.TenferroError, RuntimeError)),
        (tfi.CompileError, (tfi.BackendError,)),
        (tfi.UnsupportedError, (tfi.TenferroError, NotImplementedError)),
    ],
)
def test_error_derives_from_what_a_caller_would_catch(cls: type, bases: tuple[type, ...]):
    assert cls.__bases__ == bases


def error_classes() -> set[type]:
    return {each for each in vars(_errors).values() if isinstance(each, type) and issubclass(each, tfi.TenferroError)}


def test_every_error_class_is_public():
    assert {each.__name__ for each in error_classes()} <= set(tfi.__all__)


def test_docstring_draws_the_whole_tree():
    assert all(each.__name__ in _errors.__doc__ for each in error_classes())


def test_every_error_class_is_raised_by_a_public_call():
    raised = {cls for _, cls, _ in TEXTS.values()}
    assert error_classes() - raised == {tfi.TenferroError, tfi.BackendError, tfi.CompileError} - raised


def test_every_refusal_of_the_core_has_its_words():
    with tfi.session("cpu"):
        from tenferro_interop._explain import _TEXTS
    assert set(_core.REFUSALS) - {"OK"} == set(_TEXTS)


def test_facts_are_attributes(cpu: tfi.Session):
    with pytest.raises(tfi.SignatureError) as error:
        cpu.launch(cpu.compile_nvrtc(SOURCE).function("axpy"), ONE, [1.0, X, Y, 4.0])
    facts = error.value
    assert (facts.op, facts.argument, facts.index, facts.kernel) == ("launch", "n", 3, "axpy")
    assert (facts.expected, facts.actual) == ("a number for int", "float")


def test_backend_error_keeps_code_name_and_log():
    error = tfi.BackendError(
        "it failed", op="launch", code=700, name="CUDA_ERROR_ILLEGAL_ADDRESS", log="text", kernel="k"
    )
    assert (error.code, error.name, error.log, error.kernel) == (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "text", "k")
    assert str(error) == "launch: it failed"


def test_error_without_operation_is_its_text():
    assert str(tfi.TenferroError("it failed")) == "it failed"
