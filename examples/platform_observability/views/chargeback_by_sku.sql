-- What each SKU costs, by month; a SKU without a price has usage and no cost.
select
  d.year,
  d.month,
  s.sku_name,
  s.cloud,
  sum(f.usage_quantity) as usage_quantity,
  sum(f.list_cost) as list_cost
from fact_usage_priced_day as f
left join dim_sku as s on s.sku_sk = f.sku_sk
left join dim_date as d on d.date_sk = f.date_sk
group by d.year, d.month, s.sku_name, s.cloud
