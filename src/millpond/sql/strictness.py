"""Rejects what sqlglot accepts and Spark does not: open brackets, clauses out of order, unknown operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from millpond.sql.cursor import Cursor, Refusal

_CLOSING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def unbalanced(tokens: Iterable[Token]) -> Refusal | None:
    """The error of the first unbalanced bracket, or None."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type in _CLOSING:
            opened.append(token)
        elif token.token_type in _CLOSING.values():
            if not opened:
                return Refusal(
                    "MP103", f"'{token.text}' has no opening bracket.", token, "Remove it, or add the opening bracket."
                )
            if _CLOSING[opened[-1].token_type] != token.token_type:
                return _unclosed(opened[-1])
            opened.pop()
    return _unclosed(opened[-1]) if opened else None


def _unclosed(token: Token) -> Refusal:
    return Refusal("MP103", f"'{token.text}' is never closed.", token, f"Add the missing {_PAIRS[token.text]}")


T = TypeVar("T")

# The required order of the clauses of a query; those of equal rank may be in any order.
CLAUSE_RANKS: dict[TokenType, int] = {
    TokenType.WHERE: 1,
    TokenType.GROUP_BY: 2,
    TokenType.HAVING: 3,
    TokenType.QUALIFY: 3,
    TokenType.ORDER_BY: 4,
    TokenType.CLUSTER_BY: 4,
    TokenType.DISTRIBUTE_BY: 4,
    TokenType.SORT_BY: 4,
    TokenType.LIMIT: 5,
    TokenType.OFFSET: 6,
}

# Clauses of a SELECT that follow its joins.
AFTER_JOINS = ("where", "group", "having", "qualify", "order", "cluster", "distribute", "sort", "limit", "offset")


def _as_join(view: exp.Lateral) -> exp.Join:
    """LATERAL VIEW [OUTER] f(x) t AS a, written as a join."""
    view.set("view", False)
    kind = {"side": "LEFT", "on": exp.true()} if view.args.get("outer") else {"kind": "CROSS"}
    view.set("outer", False)
    return exp.Join(this=view, **kind)


def _in_order(kind: TokenType) -> Callable[[Any], Any]:
    parse: Callable[[Any], Any] = SparkParser.QUERY_MODIFIER_PARSERS[kind]

    def parse_in_order(self: StrictParser) -> Any:
        self.enter_clause(CLAUSE_RANKS[kind])
        return parse(self)

    return parse_in_order


class StrictParser(Cursor):
    """The hooks are sqlglot's own, so their names are."""

    # These are aliases only after AS: in `FROM t LIMIT` the number is missing.
    ALIAS_TOKENS = SparkParser.ALIAS_TOKENS - {TokenType.LIMIT, TokenType.OFFSET}
    TABLE_ALIAS_TOKENS = SparkParser.TABLE_ALIAS_TOKENS - {TokenType.LIMIT, TokenType.OFFSET}
    PLACEHOLDER_PARSERS = {TokenType.PLACEHOLDER: SparkParser.PLACEHOLDER_PARSERS[TokenType.PLACEHOLDER]}
    COLUMN_OPERATORS = {kind: SparkParser.COLUMN_OPERATORS[kind] for kind in (TokenType.DOT, TokenType.DCOLON)}
    QUERY_MODIFIER_PARSERS = {kind: _in_order(kind) for kind in CLAUSE_RANKS}
    # GROUP BY stops before these; a column may be called `window` or `offset`.
    QUERY_MODIFIER_TOKENS = set(CLAUSE_RANKS) - {TokenType.OFFSET}
    SUPPORTS_TABLE_QUERY = True

    def reset(self) -> None:
        super().reset()
        self._ranks: list[int] = []

    def enter_clause(self, rank: int) -> None:
        if rank < self._ranks[-1]:
            order = "WHERE, GROUP BY, HAVING, ORDER BY, LIMIT"
            self.refuse(
                f"{self.shown_token(self.here)} is in the wrong position.", hint=f"The order of clauses is {order}."
            )
        self._ranks[-1] = rank

    def _parse_query_modifiers(self, this: Any) -> Any:
        if isinstance(this, exp.Select):
            self._take_joins(this)
        self._ranks.append(0)
        try:
            return super()._parse_query_modifiers(this)
        finally:
            self._ranks.pop()

    def _take_joins(self, select: exp.Select) -> None:
        """Joins and lateral views in the order in which they are written."""
        token = self._curr
        joins, laterals = self.joined_relations()
        if (joins or laterals) and any(select.args.get(clause) for clause in AFTER_JOINS):
            self.refuse(
                f"{self.shown_token(token)} is in the wrong position.",
                token=token,
                hint="Write joins before WHERE and GROUP BY.",
            )
        for name, found in (("joins", joins), ("laterals", laterals)):
            for node in found:
                select.append(name, node)

    def joined_relations(self) -> tuple[list[exp.Join], list[exp.Lateral]]:
        """The joins and lateral views after a relation. A lateral view before a join becomes a join: Spark allows it in
        no other form, and the join may read the view's columns."""
        joins: list[exp.Join] = []
        laterals: list[exp.Lateral] = []
        while True:
            found = list(self._parse_joins())
            if found:
                joins += [_as_join(view) for view in laterals] + found
                laterals = []
            views = list(iter(self._parse_lateral, None))
            laterals += views
            if not found and not views:
                return joins, laterals

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        found = parse_method()
        items = [] if found is None else [found]
        while self._match(sep):
            found = parse_method()
            if found is None or len(items) == 0:
                self.refuse_unexpected("something between the commas" if not items else "something after the comma")
            items.append(found)
        return items

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        projections, excluded = super()._parse_projections()
        if not projections:
            self.refuse_unexpected("a column or an expression")
        return projections, excluded

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            self.refuse_unexpected("a column or an expression")
        return group

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        join = super()._parse_join(*args, **kwargs)
        if join and self._prev.token_type == TokenType.ON:
            self.refuse_unexpected("a condition")
        return join

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        self._expect_name_behind_as()
        return super()._parse_alias(this, explicit)

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        self._expect_name_behind_as()
        return super()._parse_table_alias(alias_tokens)

    def _expect_name_behind_as(self) -> None:
        # AS (a, b) names the columns of a function that returns several.
        if not self.sees_kind(TokenType.ALIAS) or self.sees_name(ahead=1) or self.sees_kind(TokenType.L_PAREN, ahead=1):
            return
        self._advance()
        self.refuse_unexpected("a name")

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if not self.sees_kind(TokenType.L_PAREN) or self.sees_kind(TokenType.R_PAREN, ahead=1):
            self.refuse_unexpected("a list or a query in brackets", "Write x IN (1, 2) or x IN (SELECT ...).")
        return super()._parse_in(this, alias)

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        # {a: 1} is syntax of DuckDB.
        return this if self.sees_kind(TokenType.L_BRACE) else super()._parse_bracket(this)

    def _parse_into(self) -> exp.Into | None:
        return None
