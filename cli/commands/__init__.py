"""The subcommands of ``slipway``, a module for each section of its help. They import what they run when they run."""
