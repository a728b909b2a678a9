"""One S3 server for all tests of the folder."""

from tests.rl_core.storage.conftest import s3

__all__ = ["s3"]
