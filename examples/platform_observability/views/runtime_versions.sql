-- What runs on which Spark version: old ones cost too.
select c.spark_version, count(distinct c.compute_id) as clusters, sum(f.list_cost) as list_cost
from fact_usage_priced_day as f
left join dim_cluster as c on c.cluster_sk = f.cluster_sk
group by c.spark_version
