#!/bin/sh
# The agent accepts requests that this deployment's key has signed.
set -eu
CARLOS_RELEASE_PUBKEY=$(cat "${PUBLIC:-/public}/root.pub")
export CARLOS_RELEASE_PUBKEY
exec carlos agent
