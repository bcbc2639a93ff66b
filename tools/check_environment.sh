#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/environment.md must be what vcoll-info prints. usage: check_environment.sh VCOLL_INFO SOURCE_DIR
set -euo pipefail
if ! diff -u "$2/docs/environment.md" <("$1" --markdown); then
  echo "docs/environment.md is out of date; run: build/bin/vcoll-info --markdown > docs/environment.md" >&2
  exit 1
fi
