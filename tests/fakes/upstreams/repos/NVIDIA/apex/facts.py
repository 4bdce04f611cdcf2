import os
import sys

name, module, requires = "apex", "amp_C", ["packaging"]
version = lambda: "0.1"


def gate():
    flags = {"--cpp_ext", "--cuda_ext"}
    if flags - set(sys.argv) and not (os.environ.get("APEX_CPP_EXT") == os.environ.get("APEX_CUDA_EXT") == "1"):
        raise SystemExit("neither options nor environment ask for apex's extensions")
    sys.argv = [argument for argument in sys.argv if argument not in flags]
