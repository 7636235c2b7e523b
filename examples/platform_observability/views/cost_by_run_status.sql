-- What runs cost by how they ended: failures have a price.
select
  f.date_sk,
  s.result_state,
  s.termination_code,
  sum(f.runs) as runs,
  sum(f.list_cost) as list_cost
from fact_run_status_cost as f
left join dim_run_status as s on s.run_status_sk = f.run_status_sk
group by f.date_sk, s.result_state, s.termination_code
