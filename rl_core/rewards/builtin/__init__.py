"""The built-in scorers, one a file.

Each file offers `compute_score(sample, **kwargs) -> dict` with `overall` and its components, `parse(response)`, which
gives the answer that the scorer reads or None where there is none, and `exemplar(answer)`, a response that deserves
the full score. A scorer that carries a published name gives the published numbers, their oddities included.
"""
