-- Payments are checked before they are booked: blocked cards, limits, a foreign country, and too many in a short time.
--
--   millpond run app.sql --once      over the files in payments/

CREATE TABLE cards PRIMARY KEY (card) AS SELECT * FROM 'file://./cards.csv';
CREATE TABLE blocked (card STRING PRIMARY KEY, since TIMESTAMP);
INSERT INTO blocked VALUES ('c3', TIMESTAMP '2026-02-01 00:00:00');

CREATE STREAM payments (id BIGINT, card STRING, country STRING, amount DECIMAL(12,2), ts TIMESTAMP,
                        WATERMARK FOR ts AS ts - INTERVAL 1 MINUTE)
  FROM 'file://./payments/*.jsonl';

-- One row per payment and rule that it breaks.
CREATE TABLE alerts (id BIGINT, rule STRING, card STRING, amount DECIMAL(12,2), PRIMARY KEY (id, rule));

INSERT INTO alerts
SELECT p.id, 'blocked', p.card, p.amount FROM payments p
WHERE EXISTS (SELECT 1 FROM blocked b WHERE b.card = p.card);

INSERT INTO alerts
SELECT p.id, 'limit', p.card, p.amount FROM payments p
WHERE p.amount > (SELECT c.max_amount FROM cards c WHERE c.card = p.card);

INSERT INTO alerts
SELECT p.id, 'country', p.card, p.amount FROM payments p JOIN cards c ON c.card = p.card WHERE p.country <> c.country;

INSERT INTO alerts
SELECT p.id, 'unknown', p.card, p.amount FROM payments p LEFT JOIN cards c ON c.card = p.card WHERE c.card IS NULL;

-- More than three payments of a card within ten minutes, in windows that begin every five minutes.
CREATE TABLE velocity AS
  SELECT card, window_start, COUNT(*) AS payments, SUM(amount) AS total
  FROM payments GROUP BY card, SLIDING(ts, INTERVAL 10 MINUTES, INTERVAL 5 MINUTES);
CREATE VIEW too_fast AS SELECT card, window_start, payments, total FROM velocity WHERE payments > 3;

-- What may be booked.
INSERT INTO 'file://./booked'
SELECT p.id, p.card, p.amount FROM payments p
WHERE NOT EXISTS (SELECT 1 FROM alerts a WHERE a.id = p.id);
