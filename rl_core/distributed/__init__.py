"""The ranks: the worker processes that train one model together."""
