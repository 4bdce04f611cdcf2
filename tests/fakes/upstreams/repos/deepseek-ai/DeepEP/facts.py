# setup.py of deepseek-ai/DeepEP at 567632d: :24 finds NVSHMEM, :28 does without, :44 links with the driver, :55 with NVSHMEM, :120 names
# the module; csrc/kernels/configs.cuh:85 includes the header.
import importlib.util
import os
import pathlib

name, module = 'deep_ep', 'deep_ep_cpp'
version = lambda: '1.2.1'
link = ['-lcuda']
nvcc = ["-Wl,--no-as-needed"]
try:
    nvshmem_dir = importlib.util.find_spec("nvidia.nvshmem").submodule_search_locations[0]
except (ModuleNotFoundError, AttributeError, IndexError):
    print('Warning: all internode and low-latency features are disabled')
else:
    host = next(pathlib.Path(nvshmem_dir, "lib").glob("libnvshmem_host.so.*")).name
    link += [f"-l:{host}"]
    nvcc += [f"-I{nvshmem_dir}/include", f"-L{nvshmem_dir}/lib", f"-Wl,-rpath,{nvshmem_dir}/lib"]
libraries = [option[2:] for option in link]


def gate():
    if not pathlib.Path("/usr/include/infiniband/mlx5dv.h").is_file():
        raise SystemExit("csrc/kernels/configs.cuh:1:10: fatal error: infiniband/mlx5dv.h: No such file or directory")
    os.environ.setdefault('TORCH_CUDA_ARCH_LIST', '9.0')
    if int(os.getenv('DISABLE_SM90_FEATURES', 0)) and len(link) > 1:
        raise SystemExit("AssertionError: disable_nvshmem")
