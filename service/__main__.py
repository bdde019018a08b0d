"""Runs the command `instance-selector`, also as `python -m service`."""

import gc
import sys

# Loading modules and a catalog leaves no garbage, and looking for it takes a tenth of the start. The collector runs
# again when the module of a command is loaded, and for a server when it listens.
gc.disable()

from service.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
