"""Runs test modules of pyverbs and writes one JSON object a line to a file: when a
test begins, and how it ends. A test that begins and does not end has hung or
crashed.

usage: modules.py FOLDER-OF-TESTS RESULTS SECONDS ADDRESS MODULE... -- OPTION-OF-THE-TESTS...
"""
import faulthandler
import gc
import json
import os
import random
import sys
import unittest

folder, results, seconds, address = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
split = sys.argv.index("--")
modules, options = sys.argv[5:split], sys.argv[split + 1:]

# As in the original runner: `tests` is a package, but its modules import args_parser without
# the package name.
sys.path[:0] = [os.path.dirname(os.path.abspath(folder)), folder]
sys.argv[1:] = options
import args_parser  # noqa: E402

args_parser.parser.parse_args()
import tests.base  # noqa: E402

# The tests get the address of the device's network interface from the kernel, which does not
# know the NIC's.
tests.base.RDMATestCase._get_ip_mac = lambda self, dev, port, gid: self.args.append([dev, port, gid, address, None])


class Reporter(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def report(self, test, outcome, why=""):
        print(json.dumps({"test": test.id(), "outcome": outcome, "why": why}), file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        # Prints a traceback after the time limit; the process then ends.
        faulthandler.dump_traceback_later(seconds, exit=True)
        # The tests of Debian 11 choose capabilities at random. A fixed seed keeps the results
        # comparable with the table.
        random.seed(test.id())
        self.report(test, "begin")

    def addSuccess(self, test):
        self.report(test, "pass")

    def addSkip(self, test, reason):
        self.report(test, "skip", reason)

    def addFailure(self, test, err):
        self.report(test, "fail", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        self.addFailure(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addFailure(subtest, err)

    def addExpectedFailure(self, test, err):
        self.report(test, "pass")

    def addUnexpectedSuccess(self, test):
        self.report(test, "fail", "succeeds, which is not expected")


# A test that skips during its set-up leaves objects in a reference cycle. Python may destroy the device's context before
# its completion queues, and libibverbs then uses freed memory. So the kernel frees cycles at exit.
gc.disable()
suite = unittest.defaultTestLoader.loadTestsFromNames(["tests.test_" + m for m in modules])
with open(results, "w") as out:
    suite.run(Reporter(out))
os._exit(0)
