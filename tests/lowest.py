"""Print the lower bound of every dependency as an equality: a constraints file for pip.

    python -m tests.lowest > constraints.txt

A bound that nothing ever runs on is a guess. `make lowest` runs the tests on these.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

PYPROJECT: Final = Path(__file__).resolve().parents[1] / "pyproject.toml"

_BOUND: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?>=(?P<version>[0-9.]+)")


def constraints(project: dict[str, Any]) -> Iterator[str]:
    """`name==version` for each requirement of the project and of its extras.

    Raises:
        ValueError: a requirement states no lower bound.
    """
    extras = project.get("optional-dependencies", {}).values()
    for requirement in [*project["dependencies"], *(line for extra in extras for line in extra)]:
        if requirement.startswith(f"{project['name']}["):
            continue
        bound = _BOUND.match(requirement)
        if bound is None:
            raise ValueError(f"{requirement!r} states no lower bound")
        yield f"{bound['name']}=={bound['version']}"


if __name__ == "__main__":
    print("\n".join(constraints(tomllib.loads(PYPROJECT.read_text("utf-8"))["project"])))
