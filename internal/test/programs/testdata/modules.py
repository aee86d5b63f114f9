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

# Their own runner does the same: `tests` is a package, and its modules import
# args_parser without it.
sys.path[:0] = [os.path.dirname(os.path.abspath(folder)), folder]
sys.argv[1:] = options
import args_parser  # noqa: E402

args_parser.parser.parse_args()
import tests.base  # noqa: E402

# They ask the kernel for the address of the device's network interface, but the
# NIC has one that the kernel does not know.
tests.base.RDMATestCase._get_ip_mac = lambda self, dev, port, gid: self.args.append([dev, port, gid, address, None])


class Reporter(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def report(self, test, outcome, why=""):
        print(json.dumps({"test": test.id(), "outcome": outcome, "why": why}), file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        # Says where it hangs; the process then ends.
        faulthandler.dump_traceback_later(seconds, exit=True)
        # Those of Debian 11 choose what they ask a queue pair for; a table says what came of it.
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


# A test that is skipped while it makes its objects leaves them in a cycle. Of those, Python destroys the device's context
# before its completion queues, and libibverbs then uses memory that is freed. So cycles are left to the kernel, at the end too.
gc.disable()
suite = unittest.defaultTestLoader.loadTestsFromNames(["tests.test_" + m for m in modules])
with open(results, "w") as out:
    suite.run(Reporter(out))
os._exit(0)
