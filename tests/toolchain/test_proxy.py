"""This machine's own addresses stay away from a proxy, whatever else the user excepts."""

import subprocess

import pytest

from toolchain.machine.network import proxy

OURS = "127.0.0.1,localhost,::1"


@pytest.mark.parametrize(
    ("lower", "upper", "value"),
    [
        ("", "", OURS),
        ("a", "", f"{OURS},a"),
        ("", "b", f"{OURS},b"),
        ("a", "b", f"{OURS},a,b"),
        ("a", "a", f"{OURS},a"),
        (f"{OURS},a", f"{OURS},a", f"{OURS},a"),
        ("*", "*", "*"),
    ],
)
def test_proxy_exceptions_agree_in_shell_and_toolchain(lower: str, upper: str, value: str) -> None:
    variables = {"no_proxy": lower, "NO_PROXY": upper}
    assert proxy.past(variables) == {"no_proxy": value, "NO_PROXY": value}
    for times in (1, 2):
        script = f"set -u\n{proxy.SHELL * times}echo $no_proxy $NO_PROXY"
        output = subprocess.run(["sh", "-fc", script], env=variables, capture_output=True, text=True, check=True).stdout
        assert output.split() == [value, value]
