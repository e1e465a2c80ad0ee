"""`ryu-manager` whose flows can have no idle time of more seconds than the first argument says."""

import sys

from apps.ryu_manager import green, main

green()

from pipelines.features import affinity  # noqa: E402  (after green)

affinity.LONGEST = int(sys.argv.pop(1))
main()
