"""Where alerts go, as the project file says it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from floodmark.project.kinds.monitoring import Alerts

KINDS_OF_FINDINGS = (
    "lag", "stale", "quality", "failed_run", "slow_run", "count", "stuck", "dead_letters", "sink_behind",
)  # fmt: skip


def mail_by(url: str) -> Alerts:
    return Alerts.model_validate({"to": "email", "url": url, "address": ["ops@test"], "sender": "floodmark@test"})


@pytest.mark.parametrize("kind", KINDS_OF_FINDINGS)
def test_a_channel_may_name_every_kind_that_health_finds(kind: str) -> None:
    """Also a sink that lost batches, the worst of them."""
    assert Alerts.model_validate({"to": "log", "on": [kind]}).on == (kind,)


def test_a_login_without_tls_is_refused() -> None:
    """With what to write instead."""
    with pytest.raises(ValidationError, match="in the clear: use smtps://"):
        mail_by("smtp://me:hunter2@mail.test")


@pytest.mark.parametrize(
    "url", ["smtp://mail.test", "smtps://me:hunter2@mail.test", "smtp+starttls://me:hunter2@mail.test"]
)
def test_a_mail_server_without_a_login_or_with_tls_is_taken(url: str) -> None:
    """As it stands."""
    assert mail_by(url).url == url
