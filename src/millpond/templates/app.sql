-- {name}: a Millpond app.
--
--   millpond check app.sql           find mistakes without running anything
--   millpond run app.sql --once      process the data that exists, then exit
--   millpond run app.sql             keep running; the page is at http://127.0.0.1:8080/
--   millpond shell app.sql           query and change the tables
--   millpond test tests.md           run the tests

-- A table that is loaded from a file. Columns and types are found in the file.
CREATE TABLE customers PRIMARY KEY (customer_id) AS SELECT * FROM 'file://./customers.csv';

-- A stream: every line that is added to a file in orders/ is an event.
-- A Kafka topic instead: FROM 'kafka://localhost:9092/orders' WITH ('format' = 'json')
CREATE STREAM orders (order_id BIGINT, customer_id STRING, amount DECIMAL(12,2), at TIMESTAMP)
  FROM 'file://./orders/*.jsonl';

-- A table that every order updates.
CREATE TABLE spending AS
  SELECT customer_id, COUNT(*) AS orders, SUM(amount) AS total FROM orders GROUP BY customer_id;

-- A view over tables, which is refreshed in the same transaction.
CREATE TABLE by_country AS
  SELECT c.country, SUM(s.total) AS total FROM spending s JOIN customers c ON c.customer_id = s.customer_id
  GROUP BY c.country;

-- Output: large orders with the name of the customer, as files in ./large, each exactly once.
INSERT INTO 'file://./large'
SELECT o.order_id, c.name, o.amount FROM orders o JOIN customers c ON c.customer_id = o.customer_id
WHERE o.amount > 100;

-- A query without INSERT INTO prints its rows at each start.
SELECT country, total FROM by_country ORDER BY country;
