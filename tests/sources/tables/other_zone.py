"""What a process in another time zone does; `test_postgres.py` starts it."""

from __future__ import annotations

import json
import sys

from floodmark import Job, sinks, spark_session
from floodmark import stores as fm_stores
from floodmark.sources import Postgres
from floodmark.sources.contract import Request

if __name__ == "__main__":
    database, zone, cursor, *folders = sys.argv[1:]
    options = f"-Duser.timezone={zone} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {"master": "local[2]", "driver.memory": "512m", "driver.extraJavaOptions": options}
    spark, source = spark_session(settings), Postgres(database, "o", cursor=cursor)
    if folders:
        job = Job(name="o", source=source, sinks=[sinks.Delta(f"{folders[0]}/lake")])
        receipt = job.run(spark, store=fm_stores.open(f"file://{folders[0]}/marks"))
        print(json.dumps([receipt.rows_read, receipt.mark_after]))
    else:
        span = source.look(None, Request(), lambda: spark).span
        assert span is not None
        frame = source.read(spark, span).rows
        texts = frame.selectExpr(*(f"cast(`{name}` as string) as `{name}`" for name in frame.columns)).orderBy("id")
        print(json.dumps([list(row) for row in texts.collect()]))
    spark.stop()
