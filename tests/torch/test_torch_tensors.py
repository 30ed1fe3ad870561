"""Operators on every kind of tensor: element types, strides, lazy bits, subclasses, modes."""

from __future__ import annotations

import pytest
import torch
from torch_operators import axpy, half, norm_rows, product, scale, sum_rows

import tenferro_interop as tfi
from tenferro_interop_torch import Op, op


def test_plan_follows_shape_type_and_device(device: str):
    for shape in ((3,), (2, 3), (3, 2), ()):
        for dtype in (torch.float32, torch.float64):
            x = torch.ones(shape, dtype=dtype, device=device)
            y = scale(x, 2.0)
            assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
            assert torch.equal(y, 2 * x)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_zero_elements(shape: tuple[int, ...], device: str):
    x = torch.zeros(shape, device=device, requires_grad=True)
    y = scale(x, 2.0)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape
    assert sum_rows(torch.zeros(0, 4, device=device)).shape == (0,)


def test_no_axes(device: str):
    x = torch.tensor(2.5, device=device, requires_grad=True)
    y = scale(x, 2.0)
    y.backward()
    assert (y.shape, y.item(), x.grad.item()) == ((), 5.0, 2.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8])
def test_element_types(dtype: torch.dtype, device: str):
    x = torch.arange(6, device=device).to(dtype)
    assert torch.equal(scale(x, 3), x * 3)


def test_float8_and_complex_pass_through_kernels_that_take_them(device: str):
    source = """
    extern "C" __global__ void bytes(const unsigned char* x, unsigned char* y) { y[threadIdx.x] = x[threadIdx.x]; }
    extern "C" __global__ void parts(const float2* z, float* y) { y[threadIdx.x] = z[threadIdx.x].y; }
    """
    four = tfi.LaunchConfig(1, 4)
    parts = op(
        tfi.KernelSpec(source, "parts", outputs={"y": lambda z: z.shape}, config=four), f"tfi_test::parts_{device}"
    )
    z = torch.complex(torch.zeros(4), torch.arange(4.0)).to(device)
    assert parts(z).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert parts(z.conj()).tolist() == [0.0, -1.0, -2.0, -3.0]
    copies = op(tfi.KernelSpec(source, "bytes", outputs={"y": "x"}, config=four), f"tfi_test::bytes_{device}")
    x = torch.arange(4.0, device=device).to(torch.float8_e4m3fn)
    assert torch.equal(copies(x.view(torch.uint8)).view(torch.float8_e4m3fn).float(), x.float())


@pytest.mark.parametrize("call", [scale, scale.overload])
def test_reads_any_strides_and_lazy_bits(call: Op, device: str):
    x = torch.rand(4, 5, 3, device=device)
    flipped = torch.view_as_complex(torch.rand(5, 2, device=device)).conj().imag
    image = torch.rand(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last)
    for view in (x.t() if x.ndim == 2 else x.permute(2, 0, 1), x[1:, ::2], x[2, 1], x[:, :1].expand(4, 5, 3), flipped):
        assert torch.equal(call(view, 2.0), view * 2)
    assert torch.equal(call(image, 2.0), image * 2)
    assert call(image, 2.0).is_contiguous()


def test_written_tensor_must_be_compact(device: str):
    x, y = torch.ones(4, 5, device=device), torch.zeros(5, 4, device=device)
    with pytest.raises(tfi.LayoutError, match=r"\by\b"):
        axpy(1.0, x, y.t())
    assert not y.any()


def test_view_with_an_offset_is_written_where_it_is(device: str):
    x, y = torch.ones(4, device=device), torch.zeros(12, device=device)
    axpy(1.0, x, y[4:8])
    assert y.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 4


@pytest.mark.parametrize("call", [axpy, axpy.overload])
def test_other_element_type_is_refused_by_name(call: Op, device: str):
    y = torch.zeros(3, dtype=torch.float64, device=device)
    with pytest.raises(tfi.DTypeError, match=r"\by\b"):
        call(1.0, torch.ones(3, device=device), y)
    assert not y.any()


@pytest.mark.parametrize("call", [axpy, axpy.overload])
def test_overlapping_arguments_are_refused(call: Op, device: str):
    x = torch.ones(4, device=device)
    with pytest.raises(tfi.AliasError):
        call(1.0, x[:3], x[1:])
    assert x.tolist() == [1.0] * 4


def test_inference_mode(device: str):
    with torch.inference_mode():
        x, y = torch.ones(3, device=device), torch.zeros(3, device=device)
        assert scale(x, 2.0).is_inference()
        axpy(2.0, x, y)
    assert y.tolist() == [2.0] * 3


class Tagged(torch.Tensor):
    """A subclass that keeps its type."""


def test_subclass_is_kept(device: str):
    y = scale(torch.ones(3, device=device).as_subclass(Tagged), 2.0)
    assert (type(y), y.tolist()) == (Tagged, [2.0] * 3)


def test_parameter_gives_a_plain_tensor(device: str):
    parameter = torch.nn.Parameter(torch.ones(3, device=device))
    with torch.no_grad():
        y = scale(parameter, 2.0)
    assert (type(y), y.requires_grad) == (torch.Tensor, False)
    assert scale(parameter, 2.0).requires_grad


def test_fake_and_meta_tensors_give_shapes_without_data():
    with torch._subclasses.FakeTensorMode():
        y, factor = norm_rows(torch.empty(4, 5, device="cuda"), torch.empty(5, device="cuda"))
    assert (y.shape, factor.shape, y.device.type) == ((4, 5), (4,), "cuda")
    assert scale(torch.empty(4, 5, device="meta"), 2.0).shape == (4, 5)


def test_autocast_casts_where_it_is_declared(device: str):
    x = torch.ones(3, device=device)
    with torch.autocast(device, dtype=torch.float16):
        assert half(x, 2.0).dtype == torch.bfloat16
        assert scale(x, 2.0).dtype == torch.float32
    assert half(x, 2.0).dtype == torch.float32


@pytest.mark.parametrize("call", [product, product.overload])
def test_none_for_a_tensor_is_refused_by_name(call: Op):
    with pytest.raises(tfi.ValidationError) as error:
        call(torch.ones(3), None)
    assert error.value.argument == "w"


@pytest.mark.parametrize("call", [product, product.overload])
@pytest.mark.parametrize(
    ("where", "error"),
    [("meta", tfi.ValidationError), pytest.param("cuda", tfi.RuntimeStateError, marks=pytest.mark.gpu)],
)
def test_tensors_of_two_devices_are_refused(call: Op, where: str, error: type[tfi.TenferroError]):
    x, w = torch.ones(3), torch.ones(3, device=where)
    with pytest.raises(error):
        call(x, w)
    with pytest.raises(error):
        call(w, x)
