-- What each department costs, by month.
select
  d.year,
  d.month,
  f.department,
  sum(f.usage_quantity) as usage_quantity,
  sum(f.list_cost) as list_cost
from fact_usage_priced_day as f
left join dim_date as d on d.date_sk = f.date_sk
group by d.year, d.month, f.department
