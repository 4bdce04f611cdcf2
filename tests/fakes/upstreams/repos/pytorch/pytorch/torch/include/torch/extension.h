#pragma once
#include <torch/version.h>
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 14 && __cplusplus < 202002L
#error C++20 or later compatible compiler is required to use PyTorch.
#endif
#include <pybind11/pybind11.h>
