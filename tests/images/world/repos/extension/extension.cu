#include <torch/extension.h>
__global__ void twice(float *numbers) { numbers[threadIdx.x] *= 2; }
int answer() { return 42; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("answer", &answer); }
