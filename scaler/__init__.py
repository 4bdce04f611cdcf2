"""What runs in AWS Lambda: ``webhook`` notes that a job is queued, ``keeper`` keeps as many machines as jobs take.

``listening`` is a keeper that GitHub tells of jobs without a webhook.

Nothing here imports what Lambda's Python lacks: itself, and boto3. ``waiting``, ``github`` and ``app_key`` do without
boto3, and serve runners on Kubernetes, too.
"""
