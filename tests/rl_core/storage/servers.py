"""An S3 server of this machine, with a bucket, that can be stopped and started again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import boto3

from tests.servers import free_port

PROCESS = Path(__file__).with_name("s3_process.py")
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing-secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class S3Server:
    """Keeps what it was given while it is stopped."""

    def __init__(self) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, str(PROCESS), str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self) -> None:
        self._tell("start")

    def stop(self) -> None:
        self._tell("stop")

    def close(self) -> None:
        self._process.communicate()

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


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
            server.close()
