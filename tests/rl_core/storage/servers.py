"""An S3 server of this machine, with a bucket, that can be stopped and started again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import boto3
from moto.server import ThreadedMotoServer

from tests.servers import free_port

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing-secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class S3Server:
    """Keeps what it was given while it is stopped: its data belong to the process."""

    def __init__(self) -> None:
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self._server: ThreadedMotoServer | None = None

    def start(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None


@contextmanager
def s3_server(bucket: str = "runs") -> Iterator[S3Server]:
    """A started server, named in the environment as people name theirs."""
    server = S3Server()
    with mock.patch.dict(os.environ, CREDENTIALS | {"AWS_ENDPOINT_URL": server.address}):
        server.start()
        try:
            boto3.client("s3", endpoint_url=server.address).create_bucket(Bucket=bucket)
            yield server
        finally:
            server.stop()
