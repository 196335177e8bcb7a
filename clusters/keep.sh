#!/usr/bin/env bash
# Saves what the head of a cluster has (searches, their ledgers, MLflow) in a bucket or in a folder of
# another disk, and brings it back to the next head. Stop your searches first. From your machine:
#
#   ray exec cluster.yaml 'bash ~/bitfront/clusters/keep.sh save s3://my-bucket/kept'
#   ray exec cluster.yaml 'bash ~/bitfront/clusters/keep.sh restore s3://my-bucket/kept'
#
# With machines of your own, clusters/local.yaml and /mnt/shared/kept. Where there is no PostgreSQL,
# the ledgers are in the folders of the searches.
set -euo pipefail

usage='usage: keep.sh save|restore s3://BUCKET/FOLDER|/FOLDER'
what=${1:?$usage}
place=${2:?$usage}
PATH=$HOME/bitfront-venv/bin:$PATH
dumps=$(mktemp -d)
trap 'rm -rf "$dumps"' EXIT
databases=0
if command -v psql > /dev/null && psql -d bitfront -qc '' 2> /dev/null; then databases=1; fi

copy() { # FROM TO: a folder, with all that is in it
  case $1$2 in
    *s3://*) aws s3 sync --only-show-errors "${@:3}" "$1" "$2" ;;
    *) mkdir -p "$2" && rsync -a "${@:3}" "$1/" "$2/" ;;
  esac
}

case $what in
  save)
    if ((databases)); then
      for database in bitfront mlflow; do
        pg_dump --format=custom --file="$dumps/$database.dump" "$database"
      done
      copy "$dumps" "$place/databases"
    fi
    for folder in bitfront-runs bitfront-mlflow; do
      mkdir -p "$HOME/$folder"
      copy "$HOME/$folder" "$place/$folder" --delete
    done
    echo "searches, ledgers and MLflow are in $place"
    ;;
  restore)
    if ((databases)); then
      copy "$place/databases" "$dumps"
      sudo systemctl stop bitfront-mlflow
      for database in bitfront mlflow; do
        pg_restore --clean --if-exists --no-owner --exit-on-error --dbname="$database" \
          "$dumps/$database.dump"
      done
    fi
    for folder in bitfront-runs bitfront-mlflow; do
      copy "$place/$folder" "$HOME/$folder"
    done
    if ((databases)); then sudo systemctl start bitfront-mlflow; fi
    echo "searches, ledgers and MLflow are those of $place"
    ;;
  *)
    echo "keep.sh: $what is neither save nor restore" >&2
    exit 2
    ;;
esac
