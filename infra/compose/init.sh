#!/bin/sh
# Makes the buckets, their lifecycle, and a user with a policy for each service. Run again, it
# leaves the same.
set -eu
infra=${INFRA:-/infra}

mc alias set store "$MINIO_URL" "$MINIO_ROOT_USER" "$MINIO_ROOT_PASSWORD" >/dev/null

# Unversioned: docs/deploy.md gives the reason.
mc mb --ignore-existing store/carlos-deployment store/carlos-data-ie store/carlos-data-uk

# By flags and not as a document: the JSON that mc imports spells some members its own way and
# drops the others without a word. The rules cover a versioned bucket as well.
mc ilm rule rm --all --force store/carlos-deployment 2>/dev/null || true
while read -r prefix days; do
    mc ilm rule add --prefix "$prefix" --expire-days "$days" --noncurrent-expire-days 1 \
        store/carlos-deployment </dev/null
    mc ilm rule add --prefix "$prefix" --expire-delete-marker store/carlos-deployment </dev/null
done <"$infra/expiring"

grant() { # NAME SECRET
    mc admin policy create store "$1" "$infra/policies/$1.json"
    mc admin user add store "$1" "$2"
    # Says so and fails when it is attached already.
    mc admin policy attach store "$1" --user "$1" 2>/dev/null || true
}

grant console "$CONSOLE_SECRET"
grant box-ie "$BOX_IE_SECRET"
grant box-uk "$BOX_UK_SECRET"
grant operator "$OPERATOR_SECRET"
grant replicator "$REPLICATOR_SECRET"
