"""User code that a config names: finding it, reading it as text, listing its files, loading it."""
