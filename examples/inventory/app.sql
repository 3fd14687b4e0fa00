-- A warehouse: each order is stored and takes its pieces out of the stock in one transaction.
--
--   millpond run app.sql --once      over the files in orders/
--   echo "SELECT * FROM stock;" | millpond shell app.sql

CREATE TABLE stock (sku STRING PRIMARY KEY, pieces INT NOT NULL, reorder_at INT DEFAULT 5);
INSERT INTO stock VALUES ('chair', 20, 5), ('table', 8, 3), ('lamp', 2, DEFAULT);

-- A transfer by hand: both changes, or none.
BEGIN;
UPDATE stock SET pieces = pieces - 1 WHERE sku = 'table';
UPDATE stock SET pieces = pieces + 4 WHERE sku = 'chair';
COMMIT;

CREATE STREAM incoming (order_id BIGINT, sku STRING, quantity INT) FROM 'file://./orders/*.jsonl';
CREATE TABLE orders (order_id BIGINT PRIMARY KEY, sku STRING NOT NULL, quantity INT NOT NULL);

-- The statements of a transaction over a stream become visible together, also to queries.
BEGIN;
INSERT INTO orders SELECT order_id, sku, quantity FROM incoming;
UPDATE stock SET pieces = stock.pieces - i.quantity FROM incoming i WHERE stock.sku = i.sku;
COMMIT;

-- A view: what has to be ordered, and how much is missing.
CREATE TABLE reorder PRIMARY KEY (sku) AS
  SELECT sku, pieces, reorder_at - pieces AS missing FROM stock WHERE pieces < reorder_at;

-- What purchasing receives: each row that appears in the view, changes in it or leaves it.
INSERT INTO 'file://./purchasing' SELECT _op, sku, missing FROM CHANGES(reorder);
