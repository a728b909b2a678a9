"""Checks of a device with a tiny model: what a training needs of it, computed on it and compared."""
