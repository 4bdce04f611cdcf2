"""Run a stand-in as Pulumi's plugin, without the SDK as the docker provider: ``python -m tests.fakes.plugin MODULE ADDRESS``."""

import runpy
import sys

from toolchain import pulumi_protocol

if __name__ == "__main__":
    pulumi_protocol.without_sdk()
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
