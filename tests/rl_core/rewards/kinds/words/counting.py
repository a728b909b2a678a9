from . import letters


def count(text):
    return len(text.split())


def share_of_vowels(text):
    return sum(map(text.count, letters.VOWELS)) / len(text)
