"""An S3 server in a process of its own: `python s3_process.py PORT`. In the tests' process Flask would keep vLLM from
starting.

A line `start` or `stop` at its input makes it listen or not, and is answered when that is done. It keeps what it was
given while it does not listen, and ends with its input.
"""

import sys

from moto.server import ThreadedMotoServer


def serve(port: int) -> None:
    server: ThreadedMotoServer | None = None
    for line in sys.stdin:
        if server is not None:
            server.stop()
            server = None
        if line.strip() == "start":
            server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
            server.start()
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
