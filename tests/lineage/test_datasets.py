"""Names of datasets: as other tools call them, and without a login."""

from __future__ import annotations

from floodmark.lineage import Dataset
from floodmark.lineage import datasets as places


def test_a_folder_is_called_by_its_path_or_its_bucket() -> None:
    """A container of Azure stands where others have a login."""
    assert places.folder("/lake/orders/") == Dataset("file", "/lake/orders")
    assert places.folder("s3a://bucket/lake/orders") == Dataset("s3://bucket", "lake/orders")
    assert places.folder("hdfs://me:pw@name:8020/lake") == Dataset("hdfs://name:8020", "lake")
    assert places.folder("abfss://box@account.net/lake") == Dataset("abfss://box@account.net", "lake")


def test_a_table_of_a_database_is_called_by_its_server_and_its_whole_name() -> None:
    """A missing port or schema is PostgreSQL's own default; what may be a login is left out."""
    assert places.postgres("postgresql://me:pw@db/shop?password=pw", "orders") == Dataset(
        "postgres://db:5432", "shop.public.orders"
    )
    assert places.postgres("host=db port=6000 dbname=shop password='p w'", "mart.orders") == Dataset(
        "postgres://db:6000", "shop.mart.orders"
    )
    assert places.jdbc("jdbc:postgresql://me:pw@db:1/shop", "t") == Dataset("postgres://db:1", "shop.public.t")
    assert places.jdbc("jdbc:mysql://me:pw@db:3306/shop?password=pw", "t") == Dataset("mysql://db:3306", "shop.t")
    assert places.jdbc("jdbc:oracle:thin:me/pw@db:1521:x", "t") == Dataset("oracle://db:1521:x", "t")


def test_a_topic_is_called_by_its_first_broker() -> None:
    """However the brokers are written down."""
    assert places.topic("k1:9092, k2:9092", "t") == places.topic(["k1:9092"], "t") == Dataset("kafka://k1:9092", "t")
