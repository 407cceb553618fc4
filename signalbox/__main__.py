"""`python -m signalbox`: see `signalbox.cli`."""

import sys

from signalbox.cli import main

sys.exit(main())
