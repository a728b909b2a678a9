def lateness(text):
    return len(text) / 13
