-- How much of the cost has an owner: cost whose line of business nobody tagged is not covered.
select
  f.date_sk,
  sum(case when f.line_of_business <> 'Unknown' then f.list_cost end) as covered_cost,
  sum(f.list_cost) as list_cost
from fact_usage_priced_day as f
group by f.date_sk
