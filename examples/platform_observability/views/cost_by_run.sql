-- What each run of a job costs.
select
  e.workspace_id,
  e.entity_id as job_id,
  f.job_run_id,
  min(f.date_sk) as first_date_sk,
  sum(f.usage_quantity) as usage_quantity,
  sum(f.list_cost) as list_cost
from fact_run_cost as f
left join dim_entity as e on e.entity_sk = f.entity_sk
group by e.workspace_id, e.entity_id, f.job_run_id
