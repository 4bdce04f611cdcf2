#!/bin/sh
# Every package has what it requires, in a version that it accepts.
pip check
