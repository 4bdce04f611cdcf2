"""What the workflows in ``.github/workflows`` run: ``python -m ci VERB``, one line for each step.

:mod:`stacks` decides what to build, and :mod:`toolchain` prepares the machine; this package has the rest of a GitHub
Actions job. It runs Pulumi and git and calls GitHub's API. Its input is the environment that GitHub documents, so every
line of a workflow runs on any machine.
"""
