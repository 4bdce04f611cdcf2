"""What runs in AWS Lambda: ``webhook`` notes that a job is queued, ``keeper`` keeps as many machines as jobs take.

Nothing here is imported by the Pulumi program, and nothing here imports what Lambda's Python lacks: itself, and boto3.
"""
