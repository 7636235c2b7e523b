-- How long the runs of a job take, and how many of them succeed.
select
  f.workspace_id,
  f.job_id,
  sum(f.runs) as runs,
  sum(case when s.result_state = 'SUCCEEDED' then f.runs else 0 end) as runs_succeeded,
  try_divide(sum(f.run_duration_seconds), sum(f.runs)) as mean_seconds,
  max(f.longest_seconds) as longest_seconds
from fact_runs_finished_day as f
left join dim_run_status as s on s.run_status_sk = f.run_status_sk
group by f.workspace_id, f.job_id
