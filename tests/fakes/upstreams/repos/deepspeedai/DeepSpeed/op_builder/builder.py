# As op_builder/builder.py of deepspeedai/DeepSpeed at v0.19.5, :425-447 and :487-509, on a machine with AVX-512.
import os


class OpBuilder:
    def cpu_arch(self):
        return '-march=native'

    def simd_width(self):
        return '-D__AVX512__'
