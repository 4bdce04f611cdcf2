"""What runs in AWS Lambda: ``keeper`` keeps as many machines as jobs take.

``listening`` is the keeper that GitHub tells of jobs. In old stacks, ``webhook`` notes them.

Nothing here imports what Lambda's Python lacks: itself, and boto3. ``waiting``, ``github`` and ``app_key`` do without
boto3, and serve runners on Kubernetes, too.
"""
