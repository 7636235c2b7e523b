-- Clusters that are there now, whether a policy governs them, and what they cost.
select
  c.workspace_id,
  c.compute_id,
  c.compute_name,
  c.policy_id,
  c.policy_id is not null as is_compliant,
  coalesce(sum(f.list_cost), 0) as list_cost
from dim_cluster as c
left join fact_usage_priced_day as f on f.cluster_sk = c.cluster_sk
where c.is_current and c.compute_type = 'CLUSTER'
group by c.workspace_id, c.compute_id, c.compute_name, c.policy_id
