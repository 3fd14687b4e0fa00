"""The grammar of queries: sqlglot's Spark parser, extended by URIs, WITH options, stream windows, hints and paths."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millpond.errors import SqlError, did_you_mean
from millpond.sql import nodes
from millpond.sql.function_calls import FUNCTION_PARSERS, FUNCTIONS, NO_PAREN_FUNCTION_PARSERS
from millpond.sql.nodes import take_path
from millpond.sql.strictness import StrictParser
from millpond.sql.tokens import HINT_END, URI
from millpond.sql.with_options import sees_options, take_options
from millpond.units import parse_duration

WINDOW_KINDS = {"TUMBLING": "TUMBLING", "SLIDING": "SLIDING", "HOPPING": "SLIDING", "SESSION": "SESSION"}

LIKES = (TokenType.LIKE, TokenType.ILIKE)

# 3L, 2.5BD: sqlglot reads these as casts.
NUMBER_SUFFIXES = ("L", "S", "Y", "D", "F", "BD")

WINDOW_HINTS = {
    "TUMBLING": "Write TUMBLING(column, INTERVAL 1 MINUTE), or WINDOW TUMBLING(1m).",
    "SLIDING": "Write SLIDING(column, INTERVAL 5 MINUTES, INTERVAL 1 MINUTE), or WINDOW SLIDING(5m, 1m).",
    "SESSION": "Write SESSION(column, INTERVAL 30 SECONDS), or WINDOW SESSION(30s).",
}


class Grammar(StrictParser):
    """Parser of queries; overrides hooks of sqlglot, hence the method names."""

    FUNCTIONS = FUNCTIONS
    FUNCTION_PARSERS = FUNCTION_PARSERS
    NO_PAREN_FUNCTION_PARSERS = NO_PAREN_FUNCTION_PARSERS
    # `a JOIN b` stays as written; sqlglot would add ON TRUE.
    ADD_JOIN_ON_TRUE = False
    STRING_ALIASES = False

    QUERY_MODIFIER_PARSERS = {
        **StrictParser.QUERY_MODIFIER_PARSERS,
        TokenType.WINDOW: lambda self: self._parse_window_modifier(),
    }

    def query(self) -> exp.Query:
        """A whole query: SELECT, VALUES, WITH ... SELECT, set operations, brackets around any of them."""
        start = self.here
        found = self._parse_ddl_select()
        if isinstance(found, exp.Values):
            found = self._values_to_select(found)
        if isinstance(found, exp.Query):
            return found
        if found is None:
            self.refuse_unexpected("a query")
        return self.refuse("Expected a query.", token=start)

    def condition(self) -> exp.Expression:
        """One expression."""
        found = self._parse_disjunction()
        if isinstance(found, exp.Expression):
            return found
        return self.refuse_unexpected("an expression")

    def value(self) -> exp.Expression:
        """An expression, or the word DEFAULT."""
        if self.sees("DEFAULT") and not self.sees_kind(TokenType.L_PAREN, 1) and not self.sees_kind(TokenType.DOT, 1):
            return nodes.Default().update_positions(self.take_token())
        return self.condition()

    def default_value(self) -> exp.Expression:
        """The value of a DEFAULT: an expression that ends before NOT NULL or PRIMARY KEY."""
        found = self._parse_bitwise()
        if isinstance(found, exp.Expression):
            return found
        return self.refuse_unexpected("a value")

    def uri(self) -> str:
        """The URI that comes next."""
        table = self._parse_outside_relation()
        if table and isinstance(table.this, nodes.Uri):
            return table.this.text_
        return self.refuse_unexpected("a URI")

    def relations(self) -> dict[str, Any]:
        """What follows FROM: a relation, its joins and lateral views, as arguments of an exp.Select."""
        table = self._parse_table() or self.refuse_unexpected("a table name")
        joins, laterals = self.joined_relations()
        return {"from_": exp.From(this=table), "joins": joins or None, "laterals": laterals or None}

    def relation(self) -> exp.Expr:
        """One relation with its alias: a name, a URI or a query in brackets."""
        return self._parse_table() or self.refuse_unexpected("a table name")

    def duration(self, hint: str) -> int:
        """INTERVAL 1 MINUTE, 1 minute, 1m or '1m', up to the next comma or bracket, in microseconds."""
        self.take("INTERVAL")
        start = self.position
        while self._curr and not self.sees(",") and not self.sees(")"):
            self._advance()
        tokens = self.tokens_since(start)
        if not tokens:
            self.refuse_unexpected("a duration", hint)
        try:
            return parse_duration(self._spelled(tokens))
        except SqlError as error:
            self.refuse(error.problems[0].message, token=tokens[0], code=error.code, hint=error.hint)

    def _spelled(self, tokens: list[Token]) -> str:
        """The tokens as written: the code itself, because the tokenizer reads `30s` as a SMALLINT."""
        if tokens[0].token_type == TokenType.STRING:
            return " ".join(token.text for token in tokens)
        return self.source.code[tokens[0].start : tokens[-1].end + 1]

    def any_operand(self) -> exp.Expr:
        """The operand of ANY: a subquery to compare with, patterns of LIKE, or the argument of the aggregate ANY(x)."""
        token, before = self._prev, self._tokens[self._index - 2] if self._index > 1 else None
        operand = self._parse_bitwise()
        if isinstance(operand, exp.Subquery) and isinstance(operand.this, exp.Values):
            operand.set("this", self._values_to_select(operand.this))
        if isinstance(operand, exp.Paren) and (before is None or before.token_type not in LIKES):
            return exp.Anonymous(this="ANY", expressions=[operand.this]).update_positions(token)
        return exp.Any(this=operand).update_positions(token)

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        found = super()._parse_in(this, alias)
        values = found.expressions
        if len(values) == 1 and isinstance(values[0], exp.Values):
            return exp.In(this=found.this, query=exp.Subquery(this=self._values_to_select(values[0])))
        return found

    def _parse_types(self, check_func: bool = False, *args: Any, **kwargs: Any) -> exp.Expr | None:
        # In an expression, ARRAY(NULL, x) and STRUCT(date, x) are calls: types have their parts in <>.
        if check_func and any(self.sees(word, "(") for word in ("ARRAY", "MAP", "STRUCT")):
            return None
        return super()._parse_types(check_func, *args, **kwargs)

    def _parse_statement(self) -> exp.Expr | None:
        # sqlglot calls this for what follows WITH x AS (...) and for what is inside its brackets: only queries are
        # allowed.
        return self.query()

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        table = self._parse_outside_relation() or super()._parse_table(*args, **kwargs)
        if not isinstance(table, exp.Table):
            return table
        self._take_relation_options(table)
        if not table.args.get("alias") and (alias := self._parse_table_alias(kwargs.get("alias_tokens"))):
            table.set("alias", alias)
            self._take_relation_options(table)
        if kwargs.get("joins"):
            for join in self._parse_joins():
                table.append("joins", join)
        return table

    def _take_relation_options(self, table: exp.Table) -> None:
        if not sees_options(self):
            return
        if table.args.get("mp_options"):
            self.refuse(
                "A relation has only one WITH (...), but this is the second.", hint="Put all options into one WITH."
            )
        table.set("mp_options", take_options(self))

    def _parse_outside_relation(self) -> exp.Table | None:
        """A URI, kafka_topic('x') or CHANGES(x), without its alias."""
        token = self._curr
        if token.token_type in (URI, TokenType.STRING):
            self._advance()
            return self._uri_table(token.text, token)
        if self.sees("KAFKA_TOPIC", "("):
            self._advance(2)
            topic = self.take_token()
            if topic.token_type != TokenType.STRING:
                self.refuse(
                    "The argument of kafka_topic must be the name of a topic in quotes.",
                    token=topic,
                    hint="kafka_topic('orders')",
                )
            self.expect(")")
            return self._uri_table(f"kafka://{topic.text}", topic)
        if self.sees("CHANGES", "("):
            self._advance(2)
            name = self._parse_id_var() or self.refuse_unexpected("a table's name")
            self.expect(")")
            return exp.Table(this=nodes.Changes(this=name).update_positions(token)).update_positions(token)
        return None

    def _uri_table(self, text: str, token: Token) -> exp.Table:
        if ":" not in text:
            hint = "Write a name without quotes, or a URI such as 'file://./in.csv' or 'kafka://orders'."
            self.refuse(f"'{text}' is not a URI.", token=token, code="MP105", hint=hint)
        return exp.Table(this=nodes.Uri(this=text).update_positions(token)).update_positions(token)

    def _parse_table_hints(self) -> list[exp.Expr] | None:
        # WITH (...) after a table contains options, never T-SQL's hints.
        return None

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        if self._match(TokenType.COMMA):
            table = self._parse_table(alias_tokens=kwargs.get("alias_tokens"))
            return exp.Join(this=table or self.refuse_unexpected("a table name"), kind="CROSS")
        join = super()._parse_join(*args, **kwargs)
        if join and not any(join.args.get(word) for word in ("method", "side", "kind", "on", "using")):
            # A bare `a JOIN b` would be written as `a, b`.
            join.set("kind", "INNER")
        if join and (join.args.get("on") or join.args.get("using")) and sees_options(self):
            join.set("mp_options", take_options(self))
        return join

    def _parse_hint(self) -> exp.Hint | None:
        if not self._match(TokenType.HINT):
            return None
        hints = []
        while not self._match(HINT_END):
            hints.append(self._one_hint())
            self._match(TokenType.COMMA)
        return exp.Hint(expressions=hints)

    def _one_hint(self) -> exp.Anonymous:
        token = self.here
        name = self.name("a hint")
        arguments: tuple[exp.Expression, ...] = ()
        if self.take("("):
            arguments = () if self.sees(")") else self.listed(self.condition)
            self.expect(")")
        return exp.Anonymous(this=name.text.upper(), expressions=list(arguments)).update_positions(token)

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        window = this.args.pop("mp_window", None) if this else None
        if window:
            group = this.args.get("group") or exp.Group()
            group.append("expressions", window)
            this.set("group", group)
        return this

    def _parse_window_modifier(self) -> tuple[str, Any]:
        """WINDOW TUMBLING(1m) becomes a member of GROUP BY; WINDOW w AS (...) stays a named window."""
        if self._next.text.upper() in WINDOW_KINDS and self.sees_kind(TokenType.L_PAREN, ahead=2):
            self._advance()
            return "mp_window", self._stream_window(with_column=False)
        if self.sees_kind(TokenType.L_PAREN, ahead=2):
            self._advance()
            hint = did_you_mean(self.here.text.upper(), WINDOW_KINDS) or f"Use {', '.join(WINDOW_KINDS)}."
            self.refuse(f"There is no window {self.shown_token(self.here)}.", hint=hint)
        return "windows", self._parse_window_clause()

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> Any:
        if not with_prefix and not self.sees_kind(TokenType.L_PAREN, ahead=1):
            # A column may be called cube.
            return None
        if not with_prefix and self._curr.text.upper() in WINDOW_KINDS:
            return self._stream_window(with_column=True)
        return super()._parse_cube_or_rollup(with_prefix=with_prefix)

    def _stream_window(self, with_column: bool) -> nodes.Window:
        token = self.take_token()
        kind = WINDOW_KINDS[token.text.upper()]
        self.expect("(")
        column = None
        if with_column and not self._sees_duration():
            column = self._parse_column() or self.refuse_unexpected("a column", WINDOW_HINTS[kind])
            self._window_comma(kind)
        size_us, slide_us = self._window_length(kind), None
        if kind == "SLIDING":
            self._window_comma(kind)
            slide_us = self._window_length(kind)
        if not self.take(")"):
            self.refuse_unexpected(")", WINDOW_HINTS[kind])
        window = nodes.Window(kind=kind, column=column, size_us=size_us, slide_us=slide_us)
        return window.update_positions(token)

    def _sees_duration(self) -> bool:
        return self.sees("INTERVAL") or self.sees_kind(TokenType.STRING) or self.here.text[:1].isdigit()

    def _window_comma(self, kind: str) -> None:
        if not self.take(","):
            self.refuse_unexpected(",", WINDOW_HINTS[kind])

    def _window_length(self, kind: str) -> int:
        token = self.here
        length_us = self.duration(WINDOW_HINTS[kind])
        if not length_us:
            self.refuse(
                "The length of a window must be longer than zero.", token=token, code="MP106", hint=WINDOW_HINTS[kind]
            )
        return length_us

    def _parse_column(self) -> exp.Expr | None:
        return take_path(self) or super()._parse_column()

    def _parse_value(self, values: bool = True) -> exp.Tuple | None:
        if not values:
            self.refuse(
                "DISTINCT ON is not supported.", hint="Write GROUP BY with first(...), or row_number() OVER (...)."
            )
        # VALUES 1, 2 AS t(x): what follows AS names the table, not the last value.
        if values and not self.sees_kind(TokenType.L_PAREN):
            return exp.Tuple(expressions=[self.condition()])
        return super()._parse_value(values)

    def build_cast(self, strict: bool, **kwargs: Any) -> exp.Expr:
        suffix = self._prev.text.upper()
        literal = kwargs.get("this")
        cast = super().build_cast(strict, **kwargs)
        self._refuse_precision(kwargs.get("to"))
        if suffix in NUMBER_SUFFIXES and isinstance(literal, exp.Literal):
            cast.meta["suffix"] = suffix
        return cast

    def _refuse_precision(self, to: Any) -> None:
        """Spark has no cast to TIMESTAMP(3), and ignoring the 3 would keep digits that the user wants to remove."""
        if isinstance(to, exp.DataType) and to.is_type(*exp.DataType.TEMPORAL_TYPES) and to.expressions:
            digits = to.expressions[0].name
            hint = "Write date_trunc('MILLISECOND', ...) to remove them, or TIMESTAMP."
            message = f"A cast to TIMESTAMP({digits}) is not supported: Spark's casts do not remove digits."
            self.refuse(message, token=self._prev, code="MP108", hint=hint)

    def _parse_as_command(self, start: Token) -> exp.Command:
        self.refuse(f"{self.shown_token(start)} is not allowed here.", token=start)

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        if sees_options(self):
            return None
        return super()._parse_table_alias(alias_tokens)
