-- Days of a workspace that cost more than one and a half times the mean of its seven days before.
with daily as (
  select date_sk, workspace_sk, sum(list_cost) as list_cost from fact_usage_priced_day group by date_sk, workspace_sk
),
compared as (
  select
    *,
    avg(list_cost) over (
      partition by workspace_sk order by date_sk rows between 7 preceding and 1 preceding
    ) as usual_cost
  from daily
)
select w.workspace_id, c.date_sk, c.list_cost, c.usual_cost, c.list_cost > 1.5 * c.usual_cost as is_anomaly
from compared as c
left join dim_workspace as w on w.workspace_sk = c.workspace_sk
