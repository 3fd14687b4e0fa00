"""Function calls: which become nodes of sqlglot, which stay exactly as written, and which are rejected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser

Builder = Callable[..., Any]

# The argument of a node that stores the name of the call as written, such as NVL for a Coalesce.
NAME_KEY = "millpond_name"

# Calls that sqlglot parses and writes back unchanged, for any arguments. It parses many more, but changes them:
# listagg(x) gains a comma, percentile_cont becomes approximate, max_by loses an argument.
_FAITHFUL = """
    ABS ACOS ACOSH ADD_MONTHS APPROX_COUNT_DISTINCT ARRAY ARRAY_COMPACT ARRAY_CONTAINS ARRAY_DISTINCT ARRAY_EXCEPT
    ARRAY_INTERSECT ARRAY_JOIN ARRAY_MAX ARRAY_MIN ARRAY_POSITION ASCII ASIN ASINH ATAN ATAN2 ATANH AVG BASE64 BIT_AND
    BIT_LENGTH BIT_OR BIT_XOR BOOL_AND BOOL_OR CBRT COALESCE COLLECT_SET CONCAT CONCAT_WS CONTAINS CORR COS COSH COT
    COUNT COUNT_IF COVAR_POP COVAR_SAMP CUME_DIST DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR DEGREES DENSE_RANK ENDSWITH EXP
    EXPLODE EXPLODE_OUTER FLATTEN GREATEST GROUPING GROUPING_ID HOUR IF INLINE ISNAN KURTOSIS LAG LEAD LEAST LEFT LENGTH
    LN LOWER MD5 MEDIAN MINUTE MODE MONTH MONTHS_BETWEEN NEXT_DAY NTH_VALUE NTILE NULLIF NVL2 PERCENT_RANK
    POSEXPLODE POSEXPLODE_OUTER POWER QUARTER RADIANS RANK REGR_AVGX REGR_AVGY REGR_COUNT REGR_INTERCEPT REGR_R2
    REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY REPEAT REPLACE REVERSE RIGHT ROUND ROW_NUMBER SECOND SIGN SIN SINH SKEWNESS
    SPLIT_PART SQRT STARTSWITH STDDEV STDDEV_POP STDDEV_SAMP SUM TAN TANH TRANSLATE TYPEOF UNBASE64 UNHEX UPPER VARIANCE
    VAR_POP WEEKOFYEAR YEAR CURRENT_TIMESTAMP
"""

# Calls that sqlglot writes back unchanged with these numbers of arguments; with others they stay as written.
_FAITHFUL_WITH: dict[str, Sequence[int]] = {
    "ANY_VALUE": (1,),
    "COLLECT_LIST": (1,),
    "CURRENT_DATE": (0,),
    "DATEDIFF": (2,),
    "DATE_ADD": (2,),
    "FIRST": (1,),
    "FIRST_VALUE": (1,),
    "HEX": (1,),
    "LAST": (1,),
    "LAST_DAY": (1,),
    "LAST_VALUE": (1,),
    "LPAD": (2, 3),
    "MAX": (1,),
    "MAX_BY": (2,),
    "MIN": (1,),
    "MIN_BY": (2,),
    "RPAD": (2, 3),
    "SIZE": (1,),
    "TO_DATE": (1,),
}

# Calls with words between their arguments, as in EXTRACT(YEAR FROM x).
_WORDED = ("CAST", "TRY_CAST", "CEIL", "FLOOR", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "SUBSTR", "TRIM")


def _counted(name: str, builder: Builder, counts: Sequence[int]) -> Builder:
    # sqlglot calls again with the dialect when the first call raises a TypeError.
    def build(args: list[exp.Expression], dialect: object = None) -> exp.Expr:
        if len(args) not in counts:
            return exp.Anonymous(this=name, expressions=args)
        found: exp.Expr = builder(args, dialect) if dialect else builder(args)
        return found

    return build


# Calls whose first of three arguments is a unit of time, not a column.
WITH_UNIT = ("DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "TIMESTAMPADD", "TIMESTAMPDIFF")


def _with_unit(name: str, otherwise: Builder | None) -> Builder:
    def build(args: list[exp.Expression], dialect: object = None) -> exp.Expr:
        unit = args[0] if len(args) == 3 else None
        if isinstance(unit, exp.Column) and not unit.table and isinstance(unit.this, exp.Identifier):
            return exp.Anonymous(this=name, expressions=[exp.var(unit.name.upper()), *args[1:]])
        if otherwise is None:
            return exp.Anonymous(this=name, expressions=args)
        found: exp.Expr = otherwise(args, dialect) if dialect else otherwise(args)
        return found

    return build


FUNCTIONS: dict[str, Builder] = {
    **{name: SparkParser.FUNCTIONS[name] for name in _FAITHFUL.split()},
    **{name: _counted(name, SparkParser.FUNCTIONS[name], counts) for name, counts in _FAITHFUL_WITH.items()},
}
FUNCTIONS |= {name: _with_unit(name, FUNCTIONS.get(name)) for name in WITH_UNIT}
FUNCTION_PARSERS: dict[str, Builder] = {name: SparkParser.FUNCTION_PARSERS[name] for name in _WORDED}
NO_PAREN_FUNCTION_PARSERS: dict[str, Builder] = {
    **{name: SparkParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "IF")},
    "ANY": lambda self: self.any_operand(),
}

# Every aggregate function of Spark that a stream or a table may be grouped with.
_AGGREGATES = """
    ANY ANY_VALUE APPROX_COUNT_DISTINCT APPROX_PERCENTILE ARRAY_AGG AVG BIT_AND BIT_OR BIT_XOR BOOL_AND BOOL_OR
    COLLECT_LIST COLLECT_SET CORR COUNT COUNT_IF COVAR_POP COVAR_SAMP EVERY FIRST FIRST_VALUE KURTOSIS LAST LAST_VALUE
    LISTAGG MAX MAX_BY MEAN MEDIAN MIN MIN_BY MODE PERCENTILE PERCENTILE_APPROX PERCENTILE_CONT PERCENTILE_DISC
    REGR_AVGX REGR_AVGY REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY SKEWNESS SOME STD STDDEV
    STDDEV_POP STDDEV_SAMP STRING_AGG SUM TRY_AVG TRY_SUM VAR_POP VAR_SAMP VARIANCE GROUPING GROUPING_ID
"""
AGGREGATES = frozenset(_AGGREGATES.split())


# Functions of Spark that access more than their arguments: with them, a user who may only read tables could run any
# Java method, end the process, or read files of the machine.
_JAVA, _FILES, _WORKERS = "it calls a Java method", "it reads a file of this machine", "it reads Spark's log"
REFUSED = {
    "JAVA_METHOD": _JAVA,
    "REFLECT": _JAVA,
    "TRY_REFLECT": _JAVA,
    "FROM_PROTOBUF": _FILES,
    "TO_PROTOBUF": _FILES,
    "PYTHON_WORKER_LOGS": _WORKERS,
}
REFUSED_HINT = "Only functions that compute from their arguments are allowed."


def refusal(node: exp.Expr) -> str:
    """Why a call is rejected, as a sentence; empty for any other node."""
    name = function_name(node) if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) else None
    reason = REFUSED.get(name or "")
    return f"The function '{(name or '').lower()}' is not allowed: {reason}." if reason else ""


def function_name(node: exp.Expr) -> str | None:
    """The name of a call as written, in capitals; None for anything else."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper()
    # AND, CASE and CAST are functions to sqlglot.
    if not isinstance(node, exp.Func) or isinstance(node, exp.Connector | exp.Case | exp.Cast):
        return None
    return str(node.meta.get(NAME_KEY, node.sql_name())).upper()
