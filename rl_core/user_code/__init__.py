"""Code of a user's that a config names: where it is, what it says as text, what it is made of, how it is loaded."""
