"""Secrets: masked wherever they may stand, and nothing else is."""

import json

import hypothesis
import hypothesis.strategies as st
import pytest

from millpond.app.planning import plan_text
from millpond.cli.output import problem_line
from millpond.plan.explain import explain_text
from millpond.plan.explain_json import explain_json
from millpond.redact import mask, redact

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
        f"'postgresql://bob:pa/{SECRET}@h/db'",
        f"'postgresql://bob:pa#{SECRET}@h/db'",
        f"'postgresql://bob:pa?{SECRET}@h/db'",
        f"'postgresql://bob:pa ss {SECRET}@h/db'",
        f"SELECT * FROM https://{SECRET}@h/x",
        f"https://h/x?key={SECRET}",
        f"https://h/x?rows=1&sig={SECRET}",
        f"https://h/x?{SECRET}",
        f"https://h/x?key=&{SECRET}=&rows=1",
        f"WITH ('auth.header' = '{SECRET}')",
        f"WITH (auth.scheme = '{SECRET}', format = 'json')",
        f"WITH ('kafka.oauth.assertion' = '{SECRET}')",
        f"WITH ('made.up' = '{SECRET}')",
        f"WITH ('made.up' '{SECRET}')",
        f"SET connection.crm = '{SECRET}'",
    ],
)
def test_a_secret_is_masked_with_the_line_as_long_as_before(text: str) -> None:
    assert SECRET not in redact(text)
    assert "***" in redact(text)
    masked = mask(text)
    assert SECRET not in masked
    assert len(masked) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "kafka://localhost:9092/trades",
        "SELECT password FROM users WHERE token IS NULL",
        "WITH ('key' = 'user_id', 'key.format' = 'json')",
        "'kafka://a:9092,b:9092/orders'",
        "file:///data/mail@example.csv",
        "generate://?rows=10&rate=5&seed=7",
        "WITH (format = 'json', 'topic.wait.timeout' = '60s')",
        "a = 'b'",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text
    assert mask(text) == text


def test_a_value_of_several_lines_is_masked_in_each() -> None:
    text = f"WITH (\n  'made.up' = 'one\n{SECRET}'\n)"
    assert SECRET not in mask(text)
    assert [len(line) for line in mask(text).split("\n")] == [len(line) for line in text.split("\n")]


# What may stand around the marker in a secret: all that means something in a URI or in SQL.
ODD = st.text(st.sampled_from('ab1/#?@:& =.,;%+-()[]{}"*_'), max_size=4)
SECRETS = st.builds(lambda before, after: f"{before}{SECRET}{after}", ODD, ODD)
TEMPLATES = (
    "CREATE STREAM s (a INT) FROM 'kafka://h:9092/t' WITH ('kafka.oauth.assertion' = '{}'); SELECT a, b FROM s;",
    "CREATE STREAM s (a INT) FROM 'kafka://h/t' WITH ('kafka.sasl.x' = '{}'); INSERT INTO file://./o SELECT a FROM s;",
    "CREATE TABLE t PRIMARY KEY (a) AS SELECT * FROM 'postgresql://bob:{}@h/db?table=t';",
    "CREATE TABLE t PRIMARY KEY (a) AS SELECT * FROM 'https://{}@h/x' WITH ('records' = 'a.b');",
    "CREATE TABLE t PRIMARY KEY (a) AS SELECT * FROM 'https://h/x' WITH ('auth.header' = '{}', 'nonsense' = '{}');",
    "CREATE STREAM s (a INT) FROM 'https://h/x?key={}&rows=1'; SELECT a FROM s; SELECT c FROM s;",
    "INSERT INTO 'kafka://h:9092/o' WITH ('kafka.ssl.key' = '{}', 'format' = 'nonsense') SELECT 1 AS a FROM t;",
    "CREATE STREAM s (a INT) FROM 'memory://m' WITH ('header.x' = '{}'); INSERT INTO 'made://{}@h/x' SELECT a FROM s;",
    "SET connection.crm = '{}'; SET nonsense.x = '{}'; SELECT 1 AS a;",
    "CREATE STREAM s (a INT) FROM 'kafka://h:9092/t' WITH ('kafka.x' '{}');",
    "CREATE STREAM s (a INT) FROM 'kafka://h:9092/t' WITH ('kafka.x' = '${{V:-{}}}'); SELECT b FROM s;",
    "CREATE STREAM s (a INT) FROM 'kafka://h:9092/t' WITH ('kafka.x' = '${{V}}'); SELECT b FROM s;",
)


@hypothesis.example(secret=f"&{SECRET}=", template=TEMPLATES[5])
@hypothesis.given(secret=SECRETS, template=st.sampled_from(TEMPLATES))
@hypothesis.settings(max_examples=150)
def test_no_secret_is_in_what_check_and_explain_print(secret: str, template: str) -> None:
    text = template.replace("{}", secret).replace("{{", "{").replace("}}", "}")
    plan = plan_text(text, file="app.sql", variables={"V": secret})
    texts = [text for problem in plan.problems for text in (str(problem), repr(problem), problem_line(problem))]
    if not plan.errors:
        texts += [explain_text(plan), json.dumps(explain_json(plan))]
    for line in texts:
        assert SECRET not in line
