-- A trading desk on generated data: enrichment, positions, profit and loss, risk alerts.
--
--   millpond run trading.sql            live; the last trade arrives after about half a minute, Ctrl-C stops it
--   millpond run trading.sql --once     everything at once, with the same final tables
--
-- Smaller or faster:  --set TRADES=5000 --set QUOTES=500 --set TRADE_RATE=500

-- 1. Reference data, loaded from the CSV files in this folder.
CREATE TABLE profiles PRIMARY KEY (user_id) AS SELECT * FROM 'file://./profiles.csv';
CREATE TABLE symbols  PRIMARY KEY (symbol)  AS SELECT * FROM 'file://./symbols.csv';
CREATE TABLE limits   PRIMARY KEY (user_id) AS SELECT * FROM 'file://./limits.csv';

-- 2. Quotes: prices are computed from the numbers of a generator, and a keyed table contains the last price per symbol.
CREATE STREAM quote_numbers AS
  SELECT ts, CAST(seq * 7 % 8 AS INT) AS symbol_no, seq * 86028121 % 3001 % 500 AS move
  FROM 'generate://?rows=${QUOTES:-6000}&rate=${QUOTE_RATE:-200}&seed=1';

CREATE TABLE market_data (symbol STRING PRIMARY KEY, price DECIMAL(12,2), quoted_at TIMESTAMP);

INSERT INTO market_data
SELECT element_at(array('CARP', 'FERN', 'HERON', 'MOSS', 'NEWT', 'OTTER', 'PIKE', 'REED'), symbol_no + 1),
       CAST((2000 + 1500 * symbol_no + move) * 0.01 AS DECIMAL(12,2)),
       ts
FROM quote_numbers;

-- 3. Trades, generated in the same way; a sale has a negative quantity.
CREATE STREAM trade_numbers AS
  SELECT seq, ts,
         CAST(seq * 104729 % 7919 % 20 + 1 AS INT)       AS user_no,
         CAST(seq * 15485863 % 7907 % 8 AS INT)          AS symbol_no,
         CAST(seq * 611953 % 4999 % 100 + 1 AS INT)      AS amount,
         seq * 32452843 % 997 % 5 < 2                    AS is_sale,
         seq * 49979687 % 3001 % 400                     AS move
  FROM 'generate://?rows=${TRADES:-60000}&rate=${TRADE_RATE:-2000}&seed=2';

CREATE STREAM trades AS
  SELECT concat('t', lpad(CAST(seq AS STRING), 8, '0'))  AS trade_id,
         concat('u', lpad(CAST(user_no AS STRING), 2, '0')) AS user_id,
         element_at(array('CARP', 'FERN', 'HERON', 'MOSS', 'NEWT', 'OTTER', 'PIKE', 'REED'), symbol_no + 1) AS symbol,
         CASE WHEN is_sale THEN -amount ELSE amount END  AS quantity,
         CAST((2000 + 1500 * symbol_no + move) * 0.01 AS DECIMAL(12,2)) AS price,
         ts
  FROM trade_numbers;

-- 4. Positions: one row per user and symbol, updated by every trade.
CREATE TABLE positions AS
  SELECT user_id, symbol, SUM(quantity) AS size, SUM(quantity * price) AS value, COUNT(*) AS trades
  FROM trades
  GROUP BY user_id, symbol;

-- 5. Profit and loss: a view over tables, refreshed when positions or quotes change.
CREATE TABLE profit PRIMARY KEY (user_id, symbol) AS
  SELECT p.user_id, p.symbol, p.size, p.value, m.price, p.size * m.price - p.value AS profit
  FROM positions p JOIN market_data m ON m.symbol = p.symbol;

CREATE TABLE profit_by_tier AS
  SELECT u.tier, COUNT(*) AS positions, SUM(f.profit) AS profit
  FROM profit f JOIN profiles u ON u.user_id = f.user_id
  GROUP BY u.tier;

-- 6. Every trade with its user, sector, market price and position, as files for another program.
INSERT INTO 'file://${OUT:-./out}/enriched' WITH ('format' = 'jsonl')
SELECT t.*, u.name, u.tier, s.sector, m.price AS market_price, p.size AS position
FROM trades t
  JOIN profiles u         ON u.user_id = t.user_id
  JOIN symbols s          ON s.symbol = t.symbol
  LEFT JOIN market_data m ON m.symbol = t.symbol
  LEFT JOIN positions p   ON p.user_id = t.user_id AND p.symbol = t.symbol;

-- 7. A risk alert for each trade above its user's limits.
INSERT INTO 'file://${OUT:-./out}/alerts' WITH ('format' = 'jsonl')
SELECT t.trade_id, t.user_id, u.name, t.symbol, t.quantity, t.quantity * t.price AS value, l.max_quantity, l.max_value
FROM trades t
  JOIN limits l   ON l.user_id = t.user_id
  JOIN profiles u ON u.user_id = t.user_id
WHERE abs(t.quantity) > l.max_quantity OR abs(t.quantity * t.price) > l.max_value;
