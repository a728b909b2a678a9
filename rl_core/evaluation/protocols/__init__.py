"""Published ways to measure a model, each with a version: prompt, pixel limits, sampling, parser and grader under one
name, such as `geoqa-r1v@1`. For one published claim these made a difference of ten points. Whatever changes a result
makes another version."""
