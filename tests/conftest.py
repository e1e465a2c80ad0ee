"""What every test shares: options, Hypothesis profiles, a clock, and the rule that a full run skips nothing."""

import os
from collections.abc import Generator, Iterator

import hypothesis
import pytest

# Machines of CI are slow and shared: what an example may take says nothing. There, and only there, the examples
# are the same in every run, so that a red run can be repeated.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forbid-skips", action="store_true", help="a skipped test fails (`make test` says so)")
    parser.addoption("--regenerate-golden", action="store_true", help="write golden files instead of comparing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With real switches and clocks a machine that stands still for a moment can fail a test: it gets a second try.

    Not a third, and nothing that runs in one process gets a second. The end of a run lists every one.
    """
    for item in items:
        if item.get_closest_marker("ovs") or item.get_closest_marker("api"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("--forbid-skips"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which a full run forbids: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A second try hides nothing: why the first one failed."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.write_line(f"FIRST TRY {report.nodeid} in {report.when}: {_crash(report)}")


def _crash(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return f"{crash.path}:{crash.lineno}: {crash.message}" if crash else str(report.longrepr)


@pytest.fixture(scope="module")
def own_time() -> Iterator[None]:
    """For tests of switches that are all in this process: see tests/controller/clock.py."""
    from tests.controller.clock import only_waiting_takes_time  # late: most tests do without eventlet

    with only_waiting_takes_time():
        yield
