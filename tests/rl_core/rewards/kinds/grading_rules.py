from words import counting


def grade(response, truth):
    return {"overall": float(response == truth), "words": counting.count(response)}
