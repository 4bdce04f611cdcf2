"""What Slipway costs and what it saves, measured side by side with what one would use without it.

``python -m bench`` runs inside ``.slipway/env``. Each section is a module with ``run(setting)``, which yields the rows
of its part of the table as they are measured. Nothing here is a test: a target that is missed is said in the table.
"""
