#!/bin/sh
# What an operator does once: a key, an account, a person with a token, two boxes and an instance.
# The last file written tells that all of it is there.
set -eu
umask 077

keys=${KEYS:-/keys} public=${PUBLIC:-/public} token=${TOKEN:-/token}
[ ! -s "$token/token" ] || exit 0

[ -s "$keys/root.json" ] || carlos admin keys root --out "$keys/root.json"
carlos admin keys public "$keys/root.json" >"$public/root.pub"

# A second run goes on where the first one was interrupted.
once() {
    "$@" || echo "setup: that was done before" >&2
}
once carlos admin account create demo
once carlos admin member add demo you@example.com
once carlos admin box create box-ie --region ie
once carlos admin box create box-uk --region uk
once carlos admin instance create shop.example.com --account demo --app shop --region uk

carlos admin token create demo you@example.com >"$token/new"
mv "$token/new" "$token/token"
