"""The built-in scorers, one a file.

Each file offers `compute_score(sample, **kwargs) -> dict` with `overall` and its components, and `exemplar(answer)`, a
response that deserves the full score. One that judges an answer also offers `parse(response)`: the answer that it
reads, or None where there is none. A scorer that carries a published name gives the published numbers, their oddities
included.
"""
