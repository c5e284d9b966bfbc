-- Runs once on each shard, before any proxy: the tables of the application, the same everywhere.
CREATE TABLE countries (code text PRIMARY KEY, name text NOT NULL);
INSERT INTO countries VALUES
  ('DE', 'Germany'), ('FR', 'France'), ('JP', 'Japan'), ('BR', 'Brazil'), ('KE', 'Kenya');

CREATE TABLE users (
  id text PRIMARY KEY,
  name text NOT NULL,
  country text NOT NULL REFERENCES countries,
  credit bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE orders (
  id bigint NOT NULL,
  user_id text NOT NULL REFERENCES users,
  item text NOT NULL,
  cents bigint NOT NULL,
  PRIMARY KEY (user_id, id)
);
