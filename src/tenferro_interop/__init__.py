"""Checked raw CUDA kernel launches on any DLPack tensor, on a GPU or on the embedded CPU device."""

from ._dtypes import DType as DType
from ._errors import AliasError as AliasError
from ._errors import BackendError as BackendError
from ._errors import CompileError as CompileError
from ._errors import DTypeError as DTypeError
from ._errors import ExportError as ExportError
from ._errors import LayoutError as LayoutError
from ._errors import RuntimeStateError as RuntimeStateError
from ._errors import ScalarRangeError as ScalarRangeError
from ._errors import SignatureError as SignatureError
from ._errors import TenferroError as TenferroError
from ._errors import UnsupportedError as UnsupportedError
from ._errors import ValidationError as ValidationError
from ._launch import KernelArg as KernelArg
from ._launch import LaunchConfig as LaunchConfig
from ._modules import Function as Function
from ._modules import Module as Module
from ._modules import PreparedLaunch as PreparedLaunch
from ._nvrtc_options import NvrtcOptions as NvrtcOptions
from ._open import session as session
from ._producers import Producer as Producer
from ._producers import TensorLayout as TensorLayout
from ._resources import ResourceGuard as ResourceGuard
from ._runtime import RuntimeIdentity as RuntimeIdentity
from ._session import Session as Session
from ._signature import Parameter as Parameter
from ._signature import Signature as Signature
from ._spec import KernelSpec as KernelSpec
from ._spec import LaunchPlan as LaunchPlan
from ._spec import TensorSpec as TensorSpec
from ._spec_parameters import SpecParameter as SpecParameter
from ._stream import StreamRef as StreamRef
from ._tensors import DeviceBytes as DeviceBytes
from ._tensors import DeviceTensor as DeviceTensor
from ._tensors import TensorMut as TensorMut
from ._tensors import TensorRef as TensorRef
from ._xla import XlaCall as XlaCall
from ._xla import xla_call as xla_call
from ._xla import xla_handler as xla_handler

__all__ = [
    "AliasError",
    "BackendError",
    "CompileError",
    "DType",
    "DTypeError",
    "DeviceBytes",
    "DeviceTensor",
    "ExportError",
    "Function",
    "KernelArg",
    "KernelSpec",
    "LaunchConfig",
    "LaunchPlan",
    "LayoutError",
    "Module",
    "NvrtcOptions",
    "Parameter",
    "PreparedLaunch",
    "Producer",
    "ResourceGuard",
    "RuntimeIdentity",
    "RuntimeStateError",
    "ScalarRangeError",
    "Session",
    "Signature",
    "SignatureError",
    "SpecParameter",
    "StreamRef",
    "TenferroError",
    "TensorLayout",
    "TensorMut",
    "TensorRef",
    "TensorSpec",
    "UnsupportedError",
    "ValidationError",
    "XlaCall",
    "session",
    "xla_call",
    "xla_handler",
]
