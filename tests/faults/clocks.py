def cases(kills):
    return []
