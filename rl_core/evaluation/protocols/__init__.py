"""Published ways to measure a model, one a file, each with a version.

A number means something together with the prompt, the pixels, the sampling, the parser and the grader that it was
measured with: on one claim they are worth ten points. A protocol is all of them under one name, `geoqa-r1v@1`; whatever
changes a result makes another version.
"""
