#!/bin/sh
# Every package has what it requires, in a version that it accepts, and pip works.
pip check
