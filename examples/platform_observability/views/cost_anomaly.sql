-- Days of a workspace that cost more than one and a half times the mean of the seven days before, days at rest included.
with daily as (
  select date_sk, workspace_sk, sum(list_cost) as list_cost from fact_usage_priced_day group by date_sk, workspace_sk
),
first_days as (
  select workspace_sk, min(date_sk) as first_date_sk from daily group by workspace_sk
),
days as (
  select w.workspace_sk, d.date_sk, coalesce(f.list_cost, 0) as list_cost
  from first_days as w
  join dim_date as d
    on d.date_sk >= w.first_date_sk and d.date_sk <= (select max(date_sk) from daily)
  left join daily as f on f.workspace_sk = w.workspace_sk and f.date_sk = d.date_sk
),
compared as (
  select
    *,
    avg(list_cost) over (
      partition by workspace_sk order by date_sk rows between 7 preceding and 1 preceding
    ) as usual_cost
  from days
)
select w.workspace_id, c.date_sk, c.list_cost, c.usual_cost, c.list_cost > 1.5 * c.usual_cost as is_anomaly
from compared as c
left join dim_workspace as w on w.workspace_sk = c.workspace_sk
