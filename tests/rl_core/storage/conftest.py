"""One S3 server for all tests of the folder."""

from collections.abc import Iterator

import pytest

from tests.rl_core.storage.servers import S3Server, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server
