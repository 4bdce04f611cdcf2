"""What the workflows in ``.github/workflows`` run: ``python -m ci VERB``, one line for each step.

What to build comes from :mod:`stacks`, and the machine from :mod:`toolchain`; here is only what a job of GitHub Actions
needs beside them. It speaks to Pulumi, to git and to GitHub's API, and takes what it is told from the environment that
GitHub documents, so that every line of a workflow runs anywhere.
"""
