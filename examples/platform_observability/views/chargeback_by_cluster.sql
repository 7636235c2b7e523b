-- What each cluster and warehouse costs; what ran on none of them has the unknown one.
select
  c.workspace_id,
  c.compute_type,
  c.compute_id,
  max(c.compute_name) as compute_name,
  sum(f.usage_quantity) as usage_quantity,
  sum(f.list_cost) as list_cost
from fact_usage_priced_day as f
left join dim_cluster as c on c.cluster_sk = f.cluster_sk
group by c.workspace_id, c.compute_type, c.compute_id
