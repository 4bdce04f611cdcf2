import os
import sys

name, module, requires = "apex", "amp_C", ["packaging"]
version = lambda: "0.1"

# Option -> the first module that it builds, as setup.py of the real one at 6424da3; nothing there says which it did not build.
MODULES = {
    "--cpp_ext": "apex_C",
    "--cuda_ext": "amp_C",
    "--bnp": "bnp",
    "--cudnn_gbn": "cudnn_gbn_lib",
    "--deprecated_fused_adam": "fused_adam_cuda",
    "--deprecated_fused_lamb": "fused_lamb_cuda",
    "--distributed_adam": "distributed_adam_cuda",
    "--distributed_lamb": "distributed_lamb_cuda",
    "--fast_bottleneck": "fast_bottleneck",
    "--fast_layer_norm": "fast_layer_norm",
    "--focal_loss": "focal_loss_cuda",
    "--fused_conv_bias_relu": "fused_conv_bias_relu",
    "--group_norm": "group_norm_cuda",
    "--index_mul_2d": "fused_index_mul_2d",
    "--nccl_allocator": "_apex_nccl_allocator",
    "--nccl_p2p": "nccl_p2p_cuda",
    "--peer_memory": "peer_memory_cuda",
    "--permutation_search": "permutation_search_cuda",
    "--transducer": "transducer_joint_cuda",
    "--xentropy": "xentropy_cuda",
}
# How many modules at once; setuptools does not know it.
if "--parallel" in sys.argv:
    place = sys.argv.index("--parallel")
    int(sys.argv[place + 1])
    del sys.argv[place : place + 2]
chosen = [option for option in MODULES if option in sys.argv]


def others():
    return {MODULES[option]: [] for option in chosen if MODULES[option] != module}


def gate():
    if "--cuda_ext" not in chosen:
        raise SystemExit("no option asks for apex's extensions")
    sys.argv = [argument for argument in sys.argv if argument not in chosen]
    if not os.path.exists("apex/contrib/csrc/cudnn-frontend/README.md"):
        raise SystemExit("the submodule apex/contrib/csrc/cudnn-frontend is not there")
