VOWELS = "aeiou"
