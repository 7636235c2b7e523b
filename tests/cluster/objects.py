"""A server that speaks S3, with one bucket, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SECRET = "S3cretOfTheBucket"
REGION = "us-east-1"


@dataclass(frozen=True)
class Bucket:
    """Where the double is, and the bucket in it."""

    endpoint: str
    name: str = "lake"

    def environment(self) -> dict[str, str]:
        """What a project's file may name as variables; the login, as every tool of Amazon's knows it."""
        return {
            "S3_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": "ann",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def keys(self, prefix: str = "") -> list[str]:
        """The names of what is in the bucket."""
        found = self._client().list_objects_v2(Bucket=self.name, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", ())]

    def _client(self):  # type: ignore[no-untyped-def]  # noqa: ANN202 (boto3 makes its classes as it goes)
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="ann",
            aws_secret_access_key=SECRET,
        )

    def make(self) -> None:
        """Create it."""
        self._client().create_bucket(Bucket=self.name)


@contextmanager
def s3_double() -> Iterator[Bucket]:
    """moto's server in a thread of this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        bucket = Bucket(f"http://{host}:{port}")
        bucket.make()
        yield bucket
    finally:
        server.stop()
