-- The database of a shop, for PostgreSQL with wal_level = logical:  psql "$DATABASE" -f schema.sql
CREATE TABLE customers (id BIGINT PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL, amount NUMERIC(12,2) NOT NULL, state TEXT NOT NULL);
INSERT INTO customers VALUES (1, 'Ann', 'DE'), (2, 'Bo', 'FR');
INSERT INTO orders VALUES (10, 1, 19.90, 'paid'), (11, 1, 5.00, 'open'), (12, 2, 7.50, 'paid');
