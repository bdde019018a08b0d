"""Runs the command `instance-selector`, also as `python -m service`."""

import gc
import sys

gc.disable()  # loading modules leaves no garbage, and collecting takes a tenth of the start

from service.cli.main import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    sys.exit(main())
