-- The cost of each day, and how it changed since the day before.
select
  d.date,
  f.date_sk,
  f.list_cost,
  f.list_cost - lag(f.list_cost) over (order by f.date_sk) as change_since_day_before
from (select date_sk, sum(list_cost) as list_cost from fact_usage_priced_day group by date_sk) as f
left join dim_date as d on d.date_sk = f.date_sk
