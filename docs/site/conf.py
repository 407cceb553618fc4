"""`make docs`: Sphinx builds the pages of the repository as a site.

Pages have the paths that they have in a checkout, so their links hold in both. A broken link is an
error (`-W`).
"""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]  # for `docstrings`; for `driver` and `hw`

from signalbox.tb.tools import plan  # ruff: ignore[module-import-not-at-top-of-file] - found by the path above

project = "Signalbox"
html_title = "Signalbox"
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/api/*.md", "hw/**.md", "tb/*.md"]
exclude_patterns = [".*", "sim_build", "*.egg-info", "**/__pycache__"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings"]
highlight_language = "text"
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "__init__, __new__"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_copy_source = False

CONTENTS = """

```{toctree}
:hidden:
:caption: Guides
User <docs/user-guide.md>
Hardware <docs/hardware-guide.md>
Driver <docs/driver-guide.md>
Many applications <docs/sharing.md>
Verification <docs/verification.md>
Verification plan <docs/plan.md>
Nightly results <docs/nightly.md>
Contributor <CONTRIBUTING.md>
Folders of tests <tb/README.md>
```

```{toctree}
:hidden:
:caption: Measurements
Overview <docs/measurements.md>
Urgent copies <docs/urgent-latency.md>
Runlists <docs/runlists.md>
Translation <docs/translation.md>
Address spaces <docs/address-spaces.md>
Launches <docs/launches.md>
Urgent kernels <docs/urgent-kernels.md>
Small tasks <docs/small-tasks.md>
Preemption <docs/preemption.md>
Clean storage <docs/clean-storage.md>
Nested launches <docs/nested.md>
Nested and flat <docs/nested-flat.md>
Priorities of parents <docs/nested-priorities.md>
Sharing <docs/sharing-measured.md>
Placement <docs/placement.md>
Placement and translation <docs/spread.md>
```

```{toctree}
:hidden:
:caption: Reference
Glossary <docs/glossary.md>
Driver API <docs/api/driver.md>
Hardware API <docs/api/hardware.md>
Simulation API <docs/api/simulation.md>
Blocks <hw/README.md>
Scheduling <hw/host/scheduling/README.md>
Compute engine <hw/compute/README.md>
SMs <hw/sm/README.md>
Nested launches <hw/nested/README.md>
Instruction set <hw/sm/ISA.md>
Changes <CHANGELOG.md>
```
"""
"""The site's contents, at the end of the README."""

PLAN = "docs/plan"
"""Page that ends with the table of the verification plan."""


def setup(app: Sphinx) -> None:
    """Connect what Sphinx calls."""
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _add_index)


def _add_contents(_: Sphinx, name: str, source: list[str]) -> None:
    """Complete the pages that are partly generated."""
    if name == root_doc:
        source[0] += CONTENTS
    elif name == PLAN:
        source[0] += plan.table(plan.load(), {})


def _add_index(app: Sphinx, error: Exception | None) -> None:
    """The README is what a browser opens first."""
    if error is None:
        shutil.copyfile(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))
