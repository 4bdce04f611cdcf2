def is_dynamo_supported():
    return True
