"""A pytest plugin that notes the first test to fail, and what each test costs."""

import json
import time
from pathlib import Path

# Tests that take long and see nothing more: of a whole program, of the processor, once more.
LEFT_OUT = ("test_ctrl_c_saves", "test_bfloat16_is_picked", "[bfloat16")


class Witness:
    """Lets the quick tests of each file come first, and notes the first one that fails. What the
    tests of the unchanged code cost is noted, too."""

    def __init__(self, files: list[str], failed: Path, costs: Path):
        self.files, self.failed, self.costs_file = files, failed, costs
        self.costs = read(costs)
        self.is_known = bool(self.costs)

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = [i for i in items if not any(part in i.nodeid for part in LEFT_OUT)]
        file_of = lambda item: self.files.index(item.nodeid.split("::")[0])  # noqa: E731
        items.sort(key=lambda i: (file_of(i), self.costs.get(i.nodeid, 0) > 1))

    def pytest_runtest_logstart(self) -> None:
        self.began = time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if not self.is_known:
            self.costs[nodeid] = round(time.process_time() - self.began, 2)

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed and not self.failed.exists():
            self.failed.write_text(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if not self.is_known:
            write(self.costs_file, self.costs)


def read(path: Path) -> dict:
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, content: dict) -> None:
    path.with_suffix(".tmp").write_text(json.dumps(content, indent=1))
    path.with_suffix(".tmp").replace(path)
