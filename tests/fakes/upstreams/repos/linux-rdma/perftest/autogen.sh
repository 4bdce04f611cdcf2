#!/bin/sh
echo "AC_INIT" > /dev/null
touch generated
