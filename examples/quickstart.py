import torch

import tenferro_interop as tfi

SOURCE = """
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""
device = "cuda" if torch.cuda.is_available() else "cpu"
x, y = torch.arange(1000.0, device=device), torch.ones(1000, device=device)
with tfi.session(like=x) as s:  # captures the tensor's device and PyTorch's current stream
    axpy = s.compile_nvrtc(SOURCE).function("axpy")
    s.launch(axpy, tfi.LaunchConfig.flat(1000), [2.0, x, y, 1000])  # checked against (float, const float*, float*, int)
print(y[:4])  # tensor([1., 3., 5., 7.])
