"""Secrets: masked wherever they may stand, and nothing else is."""

import pytest

from millpond.redact import mask_line, redact

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://bob:{SECRET}@h/db",
        f"postgresql://bob:{SECRET}@p@ss@h/db",
        f"SELECT * FROM mysql://:{SECRET}@h:3306/db?table=t",
        f"clickhouse://h/db?user=a&password={SECRET}&x=1",
        f"http://h/x?api_key={SECRET}",
        f"http://h/x?access-token={SECRET}&y=2",
        f"WITH ('kafka.sasl.password' = '{SECRET}', 'format' = 'json')",
        f'WITH ("password" = "{SECRET}")',
        f"'kafka.sasl.jaas.config' = 'x required username=\"u\" password=\"{SECRET}\";'",
        f"SET connection.crm = 'postgresql://u:{SECRET}@h/db'",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f'{{"token": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}{SECRET}",
        f"'password' = 'it''s {SECRET}'",
    ],
)
def test_a_secret_is_masked_with_the_line_as_long_as_before(text: str) -> None:
    assert SECRET not in redact(text)
    assert "***" in redact(text)
    masked = mask_line(text)
    assert SECRET not in masked
    assert len(masked) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "kafka://localhost:9092/trades",
        "SELECT password FROM users WHERE token IS NULL",
        "WITH ('key' = 'user_id', 'key.format' = 'json')",
        "'kafka://a:9092,b:9092/orders'",
        "kafka://h:9092/mail@example",
        "a = 'b'",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text
    assert mask_line(text) == text
