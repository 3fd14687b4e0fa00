-- Sensors: the last value of each, averages per minute, and the gaps in which a sensor was silent.
--
--   millpond run app.sql --once      over the files in readings/

CREATE TABLE sensors PRIMARY KEY (sensor) AS SELECT * FROM 'file://./sensors.csv';

CREATE STREAM readings (sensor STRING, celsius DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 30 SECONDS)
  FROM 'file://./readings/*.jsonl';

-- The last reading of each sensor.
CREATE TABLE last_reading (sensor STRING PRIMARY KEY, celsius DOUBLE, ts TIMESTAMP);
UPSERT INTO last_reading SELECT sensor, celsius, ts FROM readings;

-- Averages per minute; a reading that comes after its minute was closed corrects the row.
CREATE TABLE per_minute AS
  SELECT sensor, window_start, AVG(celsius) AS celsius, COUNT(*) AS readings
  FROM readings GROUP BY sensor, TUMBLING(ts, INTERVAL 1 MINUTE)
  WITH ('late.rows' = 'update', 'retention' = '7 days');

-- A run is a time without a gap of more than two minutes; it ends two minutes after its last reading.
CREATE TABLE runs AS
  SELECT sensor, window_start, window_end, COUNT(*) AS readings
  FROM readings GROUP BY sensor, SESSION(ts, INTERVAL 2 MINUTES)
  WITH ('late.rows' = 'update');

-- A gap is between the end of a run and the beginning of the next one.
CREATE VIEW gaps AS
  SELECT a.sensor, a.window_end - INTERVAL 2 MINUTES AS silent_from, MIN(b.window_start) AS silent_until
  FROM runs a JOIN runs b ON b.sensor = a.sensor AND b.window_start > a.window_start
  GROUP BY a.sensor, a.window_end;

-- Readings outside of the range of their sensor.
INSERT INTO 'file://./alarms'
SELECT r.sensor, s.room, r.celsius, r.ts FROM readings r JOIN sensors s ON s.sensor = r.sensor
WHERE r.celsius NOT BETWEEN s.low AND s.high;
