-- Visits of a web site: clicks become sessions, pages are counted per minute, and conversions are found.
--
--   millpond run app.sql --once      over the files in clicks/
--   millpond run app.sql             and continues with every file that is added to clicks/

-- A click may arrive up to ten seconds late.
CREATE STREAM clicks (user_id STRING, page STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS)
  FROM 'file://./clicks/*.jsonl';

CREATE TABLE users PRIMARY KEY (user_id) AS SELECT * FROM 'file://./users.csv';

-- A session ends after thirty minutes without a click. A late click that connects two sessions merges them.
CREATE TABLE sessions AS
  SELECT user_id, window_start, window_end, COUNT(*) AS clicks,
         MAX(CASE WHEN page = '/paid' THEN 1 ELSE 0 END) AS paid
  FROM clicks GROUP BY user_id, SESSION(ts, INTERVAL 30 MINUTES);

CREATE TABLE pages AS
  SELECT page, window_start, COUNT(*) AS views FROM clicks GROUP BY page, TUMBLING(ts, INTERVAL 1 MINUTE);

-- A view over the sessions: which campaign brings users who pay?
CREATE TABLE conversion AS
  SELECT u.campaign, COUNT(*) AS sessions, SUM(s.paid) AS paid
  FROM sessions s JOIN users u ON u.user_id = s.user_id GROUP BY u.campaign;

-- Clicks of users who are not known are kept for a look; they are missing in the view above.
INSERT INTO 'file://./unknown'
SELECT c.user_id, c.page, c.ts FROM clicks c LEFT JOIN users u ON u.user_id = c.user_id WHERE u.user_id IS NULL;
