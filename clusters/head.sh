#!/usr/bin/env bash
# PostgreSQL and MLflow on the head of a cluster, an Ubuntu or Debian where sudo asks for no password:
# cluster.yaml runs it when it sets the head up, and it may be run again. Both listen on the head's
# loopback only. PostgreSQL knows the head's user by its login: no password is stored anywhere.
set -euo pipefail
cd "$(dirname "$0")"
export DEBIAN_FRONTEND=noninteractive
# A machine that has just started may still be installing its updates.
apt=(sudo -E apt-get -q -y -o DPkg::Lock::Timeout=900)

command -v pg_dump > /dev/null || { "${apt[@]}" update && "${apt[@]}" install postgresql; }
sudo systemctl enable --now postgresql
# Read by us: the server's user may not look into our home.
# shellcheck disable=SC2024
sudo -u postgres psql -q -v ON_ERROR_STOP=1 -v member="$(id -un)" < database.sql

sudo tee /etc/systemd/system/bitfront-mlflow.service > /dev/null <<UNIT
[Unit]
Description=MLflow for bitfront
After=postgresql.service

[Service]
User=$(id -un)
Environment=MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
ExecStart=$HOME/bitfront-venv/bin/mlflow server --host 127.0.0.1 --port 5000 --workers 2 \\
  --backend-store-uri postgresql+psycopg:///mlflow?host=/var/run/postgresql \\
  --artifacts-destination $HOME/bitfront-mlflow
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
UNIT
sudo systemctl daemon-reload
sudo systemctl enable bitfront-mlflow
sudo systemctl restart bitfront-mlflow
# It makes its tables first.
"$HOME/bitfront-venv/bin/python" - <<'PYTHON'
import time
from urllib.request import urlopen

for _ in range(180):
    try:
        urlopen("http://127.0.0.1:5000/health", timeout=5)
        break
    except OSError:
        time.sleep(1)
else:
    raise SystemExit("MLflow does not answer: journalctl -u bitfront-mlflow says why")
PYTHON
