-- Change capture from PostgreSQL: the app follows every change that the shop makes in its own database.
--   psql "$DATABASE" -f schema.sql
--   DATABASE=postgresql://user:password@localhost:5432/shop millpond run app.sql

-- Two captured tables: a transaction of the shop that changes both is one commit here.
CREATE TABLE customers AS SELECT * FROM '${DATABASE}?table=customers' WITH ('cdc' = 'true');
CREATE TABLE orders AS SELECT * FROM '${DATABASE}?table=orders' WITH ('cdc' = 'true');

-- Views that are always equal to a query over the shop's tables, which the shop's server never has to run.
CREATE TABLE revenue AS
  SELECT c.country, COUNT(*) AS orders, SUM(o.amount) AS amount
  FROM orders o JOIN customers c ON c.id = o.customer_id
  WHERE o.state = 'paid' GROUP BY c.country;
CREATE TABLE unpaid AS
  SELECT o.id, c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.state = 'open';

-- What other systems are notified of: each country whose revenue has changed.
INSERT INTO 'file://./changes' SELECT _op, country, amount FROM CHANGES(revenue);
