"""Rows and what becomes of them: sources, preparation, the prepared dataset and its loader."""
