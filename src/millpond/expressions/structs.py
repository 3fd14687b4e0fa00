"""Structs: building them, and reading their fields."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.arrays import relisted
from millpond.expressions.frames import Datum, as_array
from millpond.expressions.kernels import Kernel, Run, Site
from millpond.expressions.nested_rules import struct_rule
from millpond.expressions.signatures import Function, Functions


def field(value: Datum, name: str) -> Datum:
    """A field of a struct, NULL where the struct is; of an array of structs, the array of that field."""
    if pa.types.is_list(value.type):
        array = as_array(value, 1, value.type)
        found = relisted(array, field(array.flatten(), name))
        return found[0] if isinstance(value, pa.Scalar) else found
    names = [f.name.lower() for f in value.type]
    return pc.struct_field(value, names.index(name.lower()))


def _named_struct(site: Site) -> Run:
    fields = list(site.gives)

    def run(*arguments: Datum) -> Datum:
        values = arguments[1::2]
        length = next((len(v) for v in values if isinstance(v, pa.Array)), 1)
        arrays = [as_array(v, length, f.type) for v, f in zip(values, fields, strict=True)]
        made = pa.StructArray.from_arrays(arrays, fields=fields)
        return made if any(isinstance(v, pa.Array) for v in values) else made[0]

    return run


FUNCTIONS: Functions = {
    "named_struct": Function(struct_rule).by(Kernel(_named_struct, lazy=False), "a struct of names and values"),
}
