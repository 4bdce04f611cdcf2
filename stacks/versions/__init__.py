"""Which versions go together: tables as data, each with its source, and the rules over them.

The tables are the TOML files in this folder. Each is read at its first use. A value that a table rules out raises
:class:`~stacks.versions.incompatible.Incompatible`: one line with the field, the value, what is allowed, and the
source of the rule.
"""
