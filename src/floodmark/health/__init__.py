"""Health: freshness, row counts, quality, mark lag and pace of a project, judged without a JVM; and whom it alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.health.alerts import Alert as Alert
    from floodmark.health.alerts import AlertFile as AlertFile
    from floodmark.health.alerts import AlertLog as AlertLog
    from floodmark.health.alerts import Email as Email
    from floodmark.health.alerts import HealthMemory as HealthMemory
    from floodmark.health.alerts import Subscription as Subscription
    from floodmark.health.alerts import Webhook as Webhook
    from floodmark.health.alerts import announce as announce
    from floodmark.health.alerts import judge as judge
    from floodmark.health.alerts import recall as recall
    from floodmark.health.alerts import remember as remember
    from floodmark.health.alerts import send as send
    from floodmark.health.alerts import summary as summary
    from floodmark.health.checks import examine as examine
    from floodmark.health.checks import row_counts as row_counts
    from floodmark.health.report import Finding as Finding
    from floodmark.health.report import JobWatch as JobWatch
    from floodmark.health.report import Limits as Limits
    from floodmark.health.report import Report as Report
    from floodmark.health.report import Status as Status
    from floodmark.health.report import TableWatch as TableWatch
    from floodmark.health.report import Watch as Watch

export_lazily(__name__)
