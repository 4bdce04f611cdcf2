def kineto_available():
    return True
