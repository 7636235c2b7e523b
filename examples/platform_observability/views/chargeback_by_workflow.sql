-- What workflows cost, by their level and the workflow that they belong to.
select
  d.year,
  d.month,
  f.workflow_level,
  f.parent_workflow_name,
  sum(f.list_cost) as list_cost
from fact_usage_priced_day as f
left join dim_date as d on d.date_sk = f.date_sk
group by d.year, d.month, f.workflow_level, f.parent_workflow_name
