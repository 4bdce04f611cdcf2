"""Benchmarks of Slipway against the tools that one would use without it.

``python -m bench`` needs the environment of ``.slipway/env``. Each section is a module with ``run(setting)``, which
yields the rows of the table as it measures them. A missed target is reported in the table and is no error.
"""
