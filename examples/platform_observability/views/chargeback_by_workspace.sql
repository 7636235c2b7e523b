-- What each workspace costs, by month.
select
  d.year,
  d.month,
  w.workspace_id,
  max(w.workspace_name) as workspace_name,
  sum(f.list_cost) as list_cost
from fact_usage_priced_day as f
left join dim_workspace as w on w.workspace_sk = f.workspace_sk
left join dim_date as d on d.date_sk = f.date_sk
group by d.year, d.month, w.workspace_id
