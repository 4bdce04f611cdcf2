"""The Pulumi program: that of the release of Slipway which requirements.txt pins."""

import runpy

runpy.run_path(".slipway/release/__main__.py", run_name="__main__")
