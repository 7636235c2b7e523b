#!/bin/sh
# Sees to the browser that the pages are tested in: Debian's own, fetched where this may be done and nowhere else.
# usage: scripts/browser.sh      says nothing if there is one; exit 1, with what to do, if there is none
set -eu
find_browser() {
    command -v chromium || command -v chromium-browser || command -v google-chrome
}
find_browser >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "fetching chromium, in which the pages are tested"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } \
        >/dev/null 2>&1 || true
fi
find_browser >/dev/null || {
    printf 'Note: no chromium here, so the pages are not tested in a browser.\nTry: sudo apt-get install chromium\n' >&2
    exit 1
}
