-- The cost of each day, how it changed since the day before, and its mean over seven days; a day without usage is one.
with daily as (
  select date_sk, sum(list_cost) as list_cost from fact_usage_priced_day group by date_sk
),
days as (
  select d.date, d.date_sk, coalesce(f.list_cost, 0) as list_cost
  from dim_date as d
  left join daily as f on f.date_sk = d.date_sk
  where d.date_sk between (select min(date_sk) from daily) and (select max(date_sk) from daily)
)
select
  date,
  date_sk,
  list_cost,
  list_cost - lag(list_cost) over (order by date_sk) as change_since_day_before,
  avg(list_cost) over (order by date_sk rows between 6 preceding and current row) as mean_of_seven_days
from days
