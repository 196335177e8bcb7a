#!/usr/bin/env bash
# Saves what the head of cluster.yaml has (searches, their ledgers, MLflow) in a bucket, before
# `ray down` deletes it, and brings it back to the next head. Stop your searches first. From your machine:
#
#   ray exec cluster.yaml 'bash ~/bitfront/clusters/keep.sh save s3://my-bucket/kept'
#   ray exec cluster.yaml 'bash ~/bitfront/clusters/keep.sh restore s3://my-bucket/kept'
set -euo pipefail

what=${1:?usage: keep.sh save|restore s3://BUCKET/FOLDER}
place=${2:?usage: keep.sh save|restore s3://BUCKET/FOLDER}
PATH=$HOME/bitfront-venv/bin:$PATH
dumps=$(mktemp -d)
trap 'rm -rf "$dumps"' EXIT

case $what in
  save)
    for database in bitfront mlflow; do
      pg_dump --format=custom --file="$dumps/$database.dump" "$database"
    done
    aws s3 cp --recursive --only-show-errors "$dumps" "$place/databases"
    for folder in bitfront-runs bitfront-mlflow; do
      mkdir -p "$HOME/$folder"
      aws s3 sync --only-show-errors --delete "$HOME/$folder" "$place/$folder"
    done
    echo "searches, ledgers and MLflow are in $place"
    ;;
  restore)
    aws s3 cp --recursive --only-show-errors "$place/databases" "$dumps"
    sudo systemctl stop bitfront-mlflow
    for database in bitfront mlflow; do
      pg_restore --clean --if-exists --no-owner --exit-on-error --dbname="$database" \
        "$dumps/$database.dump"
    done
    for folder in bitfront-runs bitfront-mlflow; do
      aws s3 sync --only-show-errors "$place/$folder" "$HOME/$folder"
    done
    sudo systemctl start bitfront-mlflow
    echo "searches, ledgers and MLflow are those of $place"
    ;;
  *)
    echo "keep.sh: $what is neither save nor restore" >&2
    exit 2
    ;;
esac
