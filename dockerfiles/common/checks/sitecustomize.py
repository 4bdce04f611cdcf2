"""Gives Triton a driver where there is no GPU; Python runs this first where the folder is on PYTHONPATH.

From 3.2 to 3.3 Triton asks for its driver as soon as a kernel is decorated with `triton.autotune`, which
TransformerEngine does while it is imported, and raises "0 active drivers". A kernel runs only when it is called.
"""

try:
    from triton.runtime import driver
except ImportError:
    pass
else:

    class Driverless:
        """A driver that nothing can be run with."""

        def get_benchmarker(self) -> None:
            """Give nothing to time a kernel with."""

    try:
        driver.active.get_benchmarker()
    except (AttributeError, ImportError, RuntimeError):
        driver.set_active(Driverless())
