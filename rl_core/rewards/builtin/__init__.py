"""The built-in rewards, one file each.

Each file has `compute_score(sample, **kwargs) -> dict`, which returns the components, and `exemplar(answer)`, which
writes a response that gets the full score. A reward that judges an answer also has `parse(response)`: the answer that
it reads, or None if there is none. A reward with a published name gives the published numbers, oddities included.
"""
