"""Where alerts go, as the project file says it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from floodmark.project.kinds.monitoring import Alerts


def mail_by(url: str) -> Alerts:
    return Alerts.model_validate({"to": "email", "url": url, "address": ["ops@test"], "sender": "floodmark@test"})


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
