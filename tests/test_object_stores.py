"""Spark's settings of S3 as deltalake and pyarrow take them, bucket by bucket, and no secret where it can be read."""

from __future__ import annotations

import pytest

from floodmark.object_stores import HadoopSettings, S3Access, is_secret
from floodmark.spark.gateway import launch_settings

DOUBLE = {
    "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:5000",
    "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
    "spark.hadoop.fs.s3a.access.key": "ann",
    "spark.hadoop.fs.s3a.secret.key": "S3cret",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.sql.shuffle.partitions": "2",
}


def known(settings: dict[str, str], where: str = "s3a://lake/orders") -> S3Access:
    hadoop = HadoopSettings()
    hadoop.remember(settings)
    access = hadoop.s3(where)
    assert access is not None
    return access


def test_deltalake_gets_what_spark_was_told() -> None:
    """Endpoint, region, login and style of addresses; plain HTTP has to be allowed in a word of its own."""
    assert known(DOUBLE).delta_options() == {
        "aws_endpoint": "http://127.0.0.1:5000",
        "aws_allow_http": "true",
        "aws_region": "eu-west-1",
        "aws_access_key_id": "ann",
        "aws_secret_access_key": "S3cret",
        "aws_virtual_hosted_style_request": "false",
        "aws_conditional_put": "etag",
    }


def test_pyarrow_gets_what_spark_was_told() -> None:
    """By names of its own."""
    assert known(DOUBLE).arrow_options() == {
        "endpoint_override": "127.0.0.1:5000",
        "scheme": "http",
        "region": "eu-west-1",
        "access_key": "ann",
        "secret_key": "S3cret",
        "force_virtual_addressing": False,
    }


def test_what_nobody_set_is_left_to_the_environment() -> None:
    """Both readers know AWS_ACCESS_KEY_ID, profiles and the machine's own role by themselves."""
    assert known({}).delta_options() == {"aws_conditional_put": "etag"}
    assert known({}).arrow_options() == {}


def test_the_settings_of_a_bucket_win_over_those_of_all() -> None:
    """As Hadoop has it."""
    settings = {**DOUBLE, "fs.s3a.bucket.other.endpoint": "s3.example.com", "fs.s3a.bucket.other.access.key": "bob"}
    here, there = known(settings), known(settings, "s3://other/orders")
    assert (here.endpoint, here.access_key) == ("http://127.0.0.1:5000", "ann")
    assert (there.endpoint, there.access_key) == ("https://s3.example.com", "bob")


def test_a_bare_host_is_spoken_to_as_another_setting_says() -> None:
    """Encrypted, unless it says no."""
    plain = {"hadoop.fs.s3a.endpoint": "minio:9000", "hadoop.fs.s3a.connection.ssl.enabled": "false"}
    assert known(plain).endpoint == "http://minio:9000"


def test_a_public_bucket_is_read_without_a_login() -> None:
    """Hadoop names a class for that."""
    provider = {
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    }
    assert known(provider).delta_options()["aws_skip_signature"] == "true"
    assert known(provider).arrow_options() == {"anonymous": True}


@pytest.mark.parametrize("where", ["/lake/orders", "file:/lake/orders", "gs://lake/orders", "abfss://a@b/orders"])
def test_other_places_have_no_settings_of_s3(where: str) -> None:
    """A disk needs none, and other stores find theirs in the environment."""
    hadoop = HadoopSettings()
    hadoop.remember(DOUBLE)
    assert hadoop.s3(where) is None


def test_a_session_is_asked_when_a_bucket_is_looked_at_and_not_before() -> None:
    """It is slow to tell, and a loop asks for its session at every turn."""
    hadoop, asked = HadoopSettings(), []

    def settings() -> dict[str, str]:
        asked.append("asked")
        return DOUBLE

    hadoop.remember_later(settings)
    hadoop.s3("/lake/orders")
    before = list(asked)
    accesses = [hadoop.s3("s3a://lake/orders"), hadoop.s3("s3a://lake/orders")]
    assert (before, asked) == ([], ["asked"])
    assert [access and access.endpoint for access in accesses] == ["http://127.0.0.1:5000"] * 2


def test_a_secret_is_in_no_text_of_an_access() -> None:
    """It may end up in a log line."""
    assert "S3cret" not in f"{known(DOUBLE)!r} {known(DOUBLE)}"


def test_a_secret_is_not_on_the_command_line_of_the_jvm() -> None:
    """Everybody on the machine may read that; it follows through the session's own socket."""
    assert set(launch_settings(DOUBLE)) == set(DOUBLE) - {
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
    }


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.session.token",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
        "spark.hadoop.fs.azure.account.key.secret",
        "spark.hadoop.google.cloud.auth.credentials",
    ],
)
def test_names_that_speak_of_secrets_are_known(name: str) -> None:
    """By the name alone: the value is not looked at."""
    assert is_secret(name)
