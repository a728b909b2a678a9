"""Data sources: each kind of source that a config may name, with its settings and its reader."""
