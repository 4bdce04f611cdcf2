"""The Pulumi program: that of Slipway's release in requirements.txt."""

import runpy

runpy.run_path(".slipway/release/__main__.py", run_name="__main__")
