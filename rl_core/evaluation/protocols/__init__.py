"""Published ways to measure a model, each with a version.

An accuracy means something only together with the prompt, the pixel limits, the sampling, the parser and the grader
that it was measured with: for one published claim they made a difference of ten points. A protocol is all of them under
one name, such as `geoqa-r1v@1`. Whatever changes a result makes another version.
"""
