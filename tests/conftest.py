"""What holds for every run of the tests."""

import signal

# A shell's background job ignores Ctrl-C, and what it starts does too: Pulumi ends its plugins so, and would wait 5 s for
# each run, and no test of Ctrl-C would tell anything.
signal.signal(signal.SIGINT, signal.default_int_handler)
