-- The databases of a team: `bitfront` for ledgers, `mlflow` for runs. Both belong to the role
-- `bitfront`, which nobody logs in as. Everyone who logs in is a member and acts as that role there, so
-- that what one makes all may use. By a superuser, with the name of one who logs in, for every person;
-- it may be run again:
--
--   sudo -u postgres psql -v ON_ERROR_STOP=1 -v member="$USER" -f clusters/database.sql
--
-- Encoding and locale are named since a server on a machine without a locale makes databases in
-- SQL_ASCII, whose text MLflow's driver hands on as bytes.
SELECT 'CREATE ROLE bitfront NOLOGIN'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bitfront') \gexec
SELECT 'CREATE DATABASE bitfront OWNER bitfront
  ENCODING ''UTF8'' LC_COLLATE ''C'' LC_CTYPE ''C'' TEMPLATE template0'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'bitfront') \gexec
SELECT 'CREATE DATABASE mlflow OWNER bitfront
  ENCODING ''UTF8'' LC_COLLATE ''C'' LC_CTYPE ''C'' TEMPLATE template0'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'mlflow') \gexec
-- One that somebody had made before; an `mlflow` of somebody else stays theirs.
ALTER DATABASE bitfront OWNER TO bitfront;
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', datname)
FROM pg_database WHERE datdba = 'bitfront'::regrole \gexec

SELECT format('CREATE ROLE %I LOGIN', :'member')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'member') \gexec
SELECT format('GRANT bitfront TO %I', :'member') \gexec
SELECT format('ALTER ROLE %I IN DATABASE %I SET role TO bitfront', :'member', datname)
FROM pg_database WHERE datdba = 'bitfront'::regrole \gexec

-- Tables that somebody's searches had made before; their sequences go with them.
\connect bitfront
SELECT format('ALTER TABLE %I.%I OWNER TO bitfront', schemaname, tablename)
FROM pg_tables WHERE schemaname = 'public' AND tableowner <> 'bitfront' \gexec
SELECT format('ALTER TYPE public.%I OWNER TO bitfront', typname)
FROM pg_type WHERE typtype = 'e' AND typnamespace = 'public'::regnamespace
AND typowner <> 'bitfront'::regrole \gexec
