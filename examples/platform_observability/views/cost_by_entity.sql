-- What each job and pipeline costs, whatever it was called at the time.
select
  e.workspace_id,
  e.entity_type,
  e.entity_id,
  max(e.entity_name) as entity_name,
  sum(f.list_cost) as list_cost,
  sum(f.runs) as runs
from fact_entity_cost as f
left join dim_entity as e on e.entity_sk = f.entity_sk
group by e.workspace_id, e.entity_type, e.entity_id
