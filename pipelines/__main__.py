"""``python -m foretail.pipelines STAGE ...`` is ``foretail STAGE ...``."""

from __future__ import annotations

import sys

from foretail.pipelines import cli

if __name__ == "__main__":
    sys.exit(cli.main())
