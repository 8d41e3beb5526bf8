import sys

from triage.supervisor.cli import main

sys.exit(main())
