-- Every tag that a record of usage has itself, one row each.
select record_id, date_sk, tag_key, tag_value
from slv_usage_txn
lateral view explode(custom_tags) as tag_key, tag_value
