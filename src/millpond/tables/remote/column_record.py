"""The columns and key of a table as recorded on a server that has no schemas, and how the declared ones differ."""

from __future__ import annotations

import json
from collections.abc import Mapping

from millpond.schema import Schema


def recorded(schema: Schema) -> str:
    """What is stored beside the rows."""
    return json.dumps({"columns": {c.name: str(c.type) for c in schema}, "key": list(schema.key)})


def differences(held: Mapping[str, str], schema: Schema) -> str:
    """What differs between the recorded and the declared columns, as a part of a sentence; "" if nothing does, or if
    nothing is recorded."""
    if "columns" not in held or held["columns"] == recorded(schema):
        return ""
    was, now = json.loads(held["columns"]), json.loads(recorded(schema))
    names = dict.fromkeys([*was["columns"], *now["columns"]])
    wrong = [
        f"column '{name}' is {was['columns'].get(name, 'missing')}, not {now['columns'].get(name, 'declared here')}"
        for name in names
        if was["columns"].get(name) != now["columns"].get(name)
    ]
    if was["key"] != now["key"]:
        wrong.append(f"the key is ({', '.join(was['key'])}), not ({', '.join(now['key'])})")
    return "; ".join(wrong)
