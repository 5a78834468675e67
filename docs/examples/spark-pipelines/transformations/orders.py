"""A topic as a growing table, and a view with the number of records of each key."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", spark.conf.get("penstock.bootstrap"))
        .option("subscribe", spark.conf.get("penstock.topic"))
        .option("startingOffsets", "earliest")
        .load()
    )


@dp.materialized_view
def orders_by_key() -> DataFrame:
    rows = spark.read.table("orders").withColumn("key", f.col("key").cast("string"))
    return rows.groupBy("key").agg(f.count("*").alias("records"), f.max("timestamp").alias("last"))
