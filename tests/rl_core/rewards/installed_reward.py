"""A reward in an installed package."""


def score(sample):
    right = float(sample.response == sample.ground_truth_text)
    return {"overall": right, "accuracy": right}
