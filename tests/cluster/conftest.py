"""The cluster and the S3 double: both are started by the first test that asks for them, and are real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.objects import Bucket, s3_double
from tests.cluster.standalone import Cluster, require_namespaces, running_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers that see one folder of the driver's and no other."""
    require_namespaces()
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    """An empty bucket of a server that speaks S3."""
    with s3_double() as made:
        yield made
