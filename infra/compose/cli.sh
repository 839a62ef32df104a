#!/bin/sh
# The command line of the person whom setup.sh gave a token.
set -eu
CARLOS_TOKEN=$(cat "${TOKEN:-/token}/token")
export CARLOS_TOKEN
exec carlos "$@"
