"""Entry points that choose by their command, as official images have them; tests/images/test_started.py asks shells."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from containers.image.binaries.elf_file import X86_64
from containers.starting import started_programs
from containers.starting.refusals import Refusal
from containers.starting.shell import entry_scripts
from containers.starting.shell.script_state import Asked, Shell
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every
from tests.helpers.image_files import Files, image

PROGRAM = elf(interpreter=LOADER)
PROGRAMS = (
    "gosu redis-server setpriv find cat tail env cp tar unzip pip chmod chown sed install-it fetch-it server sleep ls id "
    "whoami tee"
)
REDIS = """
set -e
if [ "${1#-}" != "$1" ] || [ "${1%.conf}" != "$1" ]; then
	set -- redis-server "$@"
fi
if [ "$1" = 'redis-server' -a "$(id -u)" = '0' ]; then
	find . \\! -user redis -exec chown redis '{}' +
	exec gosu redis "$0" "$@"
fi
um="$(umask)"
if [ "$um" = '0022' ]; then umask 0077; fi
exec "$@"
"""
POSTGRES = """
_is_sourced() {
	[ "${#FUNCNAME[@]}" -ge 2 ] && [ "${FUNCNAME[0]}" = '_is_sourced' ] && [ "${FUNCNAME[1]}" = 'source' ]
}
_main() {
	if [ "${1:0:1}" = '-' ]; then
		set -- redis-server "$@"
	fi
	if [ "$1" = 'redis-server' ] && [ "$(id -u)" = '0' ]; then
		cat <<-'EOM'
			if ( then case
		EOM
		exec gosu redis "$BASH_SOURCE" "$@"
	fi
	exec "$@"
}
if ! _is_sourced; then
	_main "$@"
fi
"""
CHOICE = """
case "$1" in
  serve | web) shift; exec redis-server "$@" ;;
  work) exec gone ;;
  shell) exec /bin/sh ;;
  --*) exec redis-server "$@" ;;
"""
REFUSES = CHOICE + '  *) echo "unknown: $1" >&2; exit 64 ;;\nesac\n'
"""A command that is none of these ends with a status."""
IGNORES = CHOICE + "esac\n"
CYCLE = '[[ $# -gt 9 ]] && exec gone\nexec "$0" "$@" x\n'


def files(text: str, *missing: str) -> Files:
    programs = ("bin/sh", "bin/bash", *(f"usr/bin/{name}" for name in PROGRAMS.split()))
    present: Files = {path: PROGRAM for path in programs if path not in missing}
    accounts = "root:x:0:0::/:\nredis:x:9:9::/:"
    others: Files = {"etc/passwd": accounts, "srv/x": "", "srv/shut": PROGRAM, "srv/windows": "#!/bin/sh\r\n"}
    return {**present, **others, "entry": f"#!/bin/bash\n{text}"}


def lines(
    text: str, command: Sequence[str], *missing: str, user: str = "", entrypoint: Sequence[str] = ()
) -> list[str]:
    config = {"Entrypoint": [*entrypoint] or ["/entry"], "Cmd": [*command], "User": user, "Env": ["PATH=/usr/bin:/bin"]}
    read = image(files(text, *missing), config, modes={"srv/shut": (0o600, 0)})
    found = started_programs.faults(read, X86_64, "linux/amd64")
    return [fault.reason for fault in found if "does not start as" in str(fault)]


GONE = "no folder of PATH has gone"
SERVER = "usr/bin/redis-server"


@every(
    "text, command, missing, expected",
    [
        (REDIS, ["redis-server"], "", None),
        (REDIS, ["redis-server"], SERVER, "no folder of PATH has redis-server"),
        (REDIS, ["x.conf"], SERVER, "no folder of PATH has redis-server"),
        (REDIS, ["--port", "1"], "usr/bin/gosu", "no folder of PATH has gosu"),
        (REDIS, ["gone"], "", GONE),
        (REDIS, ["bash"], "usr/bin/gosu", None),
        (POSTGRES, ["redis-server"], "", None),
        (POSTGRES, ["-x"], SERVER, "no folder of PATH has redis-server"),
        (POSTGRES, ["gone", "x"], "", GONE),
        (REFUSES, ["serve", "x"], "", None),
        (REFUSES, ["web"], SERVER, "no folder of PATH has redis-server"),
        (REFUSES, ["work"], "", GONE),
        (REFUSES, ["server"], "", "/entry starts nothing for server"),
        (REFUSES, ["--x"], "", None),
        (REFUSES, [], "", None),
        (IGNORES, ["server"], "", "/entry starts nothing for server"),
        (IGNORES + "exec bash\n", ["server"], "", None),
        (IGNORES + "redis-server\n", ["server"], "", None),
        (IGNORES + "some_function\n", ["server"], "", "no folder of PATH has some_function"),
        (CYCLE, ["x"], "", None),
        ('[ -f /srv/x ] && exec gone\nexec bash', ["x"], "", None),
        ('if [ "$A" ]; then exec gone; else exec ./gone; fi', ["x"], "", "/gone does not exist"),
        ('[ "$(id -u)" != 0 ] || exec setpriv --reuid redis -- gone\nexec bash', ["x"], "", GONE),
        ('[ "$(id -u)" != 0 ] && exec gone\nexec bash', ["x"], "", None),
        ('for each in a b; do export X_$each=1; done; exec "$@"', ["gone"], "", None),
        ('for each in a b; do echo "$each"; done; exec "$@"', ["gone"], "", GONE),
        ('while read -r line; do echo "$line"; done < /srv/x; exec "$@"', ["gone"], "", GONE),
        ('for each in a b; do cp /srv/x /srv/gone; done; exec "$@"', ["/srv/gone"], "", None),
        ('A=bash; for each in a b; do exec "$A"; A=gone; done; exec "$@"', ["gone"], "", None),
        ('while [ $# -gt 1 ]; do shift; done; exec "$@"', ["gone"], "", None),
        ('for p in /srv/gone /usr/bin/redis-server; do [ -x "$p" ] && exec "$p"; done', ["x"], "", None),
        ('for p in /srv/gone /usr/bin/redis-server; do [ -x "$p" ] && exec "$p"; done; exit 1', ["x"], SERVER, "/srv/gone does not exist"),
        ('P=gone; for p in /srv/gone /bin/sh; do if [ -x "$p" ]; then P=$p; break; fi; done; exec $P', ["x"], "", None),
        ('P=gone; for p in /srv/gone "$1"; do if [ -x "$p" ]; then P=$p; break; fi; done; exec $P', ["/x"], "", GONE),
        ('P=gone; for p in a b; do break; P=bash; done; exec $P', ["x"], "", GONE),
        ('P=gone; for p in a b; do continue; P=bash; done; exec $P', ["x"], "", GONE),
        ('P=gone; for p in a b; do for q in a; do break 2; done; P=bash; done; exec $P', ["x"], "", None),
        ('for arg; do [ "$arg" = --x ] || P=$arg; done; exec "$P"', ["gone", "--x"], "", GONE),
        ('for p in $(ls /srv); do exec "/srv/$p"; done; exec gone', ["x"], "", None),
        ('x=$(tar xf /srv/x -C /srv)\nexec "$@"', ["/srv/gone"], "", None),
        ('x="$(echo "$(unzip /srv/x)")"\nexec "$@"', ["/srv/gone"], "", None),
        ('echo `pip install it`\nexec "$@"', ["/srv/gone"], "", None),
        ('case $(fetch-it) in x) ;; esac\nexec "$@"', ["/srv/gone"], "", None),
        ('while read -r x; do echo "$x"; done < <(install-it)\nexec "$@"', ["/srv/gone"], "", None),
        ('f() { tar xf /srv/x; }\nx=$(f)\nexec "$@"', ["/srv/gone"], "", None),
        ('x=$(cat /srv/x; echo $((1 + 2))) y=`id \\`whoami\\``\nexec "$@"', ["/srv/gone"], "", "/srv/gone does not exist"),
        ('exec "${@:2}"', ["x", "gone"], "", GONE),
        ('exec "$1" --x', ["gone"], "", GONE),
        ('cd /srv\nexec "$@"', ["./gone"], "", "/srv/gone does not exist"),
        ('cd "$A"\nexec "$@"', ["./gone"], "", None),
        ('A=redis-server; B=${A%-server}; exec "$B"', [], "", "no folder of PATH has redis"),
        ('[[ $1 == g* && ! $1 == x ]] && set -- bash; exec "$@"', ["gone"], "", None),
        ('[[ $1 == x || $1 == "g*" ]] && set -- bash; exec "$@"', ["gone"], "", GONE),
        ('f() { return 1; }\nf && set -- bash\nexec "$@"', ["gone"], "", GONE),
        ('f() { set -- bash; }\nf\nexec "$@"', ["gone"], "", GONE),
        ('(exit 0); { true; } | exit 0\nexec "$@"', ["gone"], "", GONE),
        ('server &\nexec "$@"', ["gone"], "", None),
        ('install-it\nexec "$@"', ["gone"], "", None),
        ('install-it\nexec "$@"', ["/srv/gone"], "", None),
        ('install-it\nexec /srv/shut', ["x"], "", None),
        ('/usr/bin/pip install it\nexec "$@"', ["/srv/gone"], "", None),
        ('echo | tar x\nexec "$@"', ["/srv/gone"], "", None),
        ('(cd /srv && cp x gone)\nexec "$@"', ["/srv/gone"], "", None),
        ('chmod +x /srv/shut\nexec /srv/shut', ["x"], "", None),
        ('chmod -R 755 /srv\nexec /srv/shut', ["x"], "", None),
        ('chmod +x /srv/*\nexec /srv/shut', ["x"], "", None),
        ('command -v x >/dev/null && echo; tail -n 1 /srv/x\nexec "$@"', ["gone"], "", GONE),
        ('chmod 700 "$DATA"\nexec "$@"', ["gone"], "", GONE),
        ('find /srv -exec chmod +x {} +\nexec /srv/shut', ["x"], "", None),
        ('chown redis /srv\nexec gosu redis /srv/shut', ["x"], "", None),
        ('chown -R redis /var/lib/redis; chmod 755 "/srv"\nexec gosu redis gone', ["x"], "", GONE),
        ('chmod 755 /usr/bin/redis-server\nexec redis-server', ["x"], SERVER, None),
        ("sed -i 's/\\r//' /srv/windows\nexec /srv/windows", ["x"], "", None),
        ("sed 's/x/y/' /srv/shut\nexec /srv/shut", ["x"], "", "user root may not run /srv/shut, whose mode is 0600"),
        ('pip install it\nexec "$@"', ["/srv/gone"], "", None),
        ('echo > /srv/gone\nexec "$@"', ["/srv/gone"], "", None),
        ('echo >&2; echo 2>/dev/null\nexec "$@"', ["gone"], "", GONE),
        ('. /srv/env\nexec "$@"', ["gone"], "", None),
        ('. /srv/env\nexec "$@"', ["/srv/gone"], "", "/srv/gone does not exist"),
        ('. /srv/x\nexec "$@"', ["/srv/gone"], "", None),
        ('cd /srv; . ./x\nexec "$@"', ["/srv/gone"], "", None),
        ('PATH=/srv:$PATH\nexec "$@"', ["gone"], "", None),
        ('case "$1" in [!a-f]*) exec "$@" ;; *) exec bash ;; esac', ["gone"], "", GONE),
        ('case "$1" in g*) ;& *) exec "$@" ;; esac', ["gone"], "", None),
        ('echo "$HOST $PORT $USERNAME $PASSWORD $DATABASE $SCHEMA $TIMEOUT $LOGLEVEL $WORKERS $(id "+%s")"\nexec gone', ["x"], "", GONE),
        ('exec /usr/bin/\\\nserver', ["x"], "", None),
        ('cd /srv; cd ..; exec "$PWD/usr/bin/server"', ["x"], "", None),
        ('exec bash -c "exec $@"', ["bash", "/srv/gone"], "", None),
        ('[ ! "$1" -a "$2" ] && exec server; exit 1', ["serve", ""], "", None),
        ('type ulimit || exit 1; exec server', ["x"], "", None),
        ('install-it\nexec bash /srv/gone', ["x"], "", None),
        ('set -e\ninstall-it\ncd /srv/x\nexec server', ["x"], "", None),
        ('echo "$S" > gone.sh; exec bash gone.sh', ["x"], "", None),
        ('echo "$S" > gone; exec bash gone', ["x"], "", None),
        ('echo "$S" | tee gone.sh; exec bash gone.sh', ["x"], "", None),
        ('echo > /srv/gone; exec gosu redis gone', ["x"], "", None),
        ('cd /usr/bin; echo > gone; exec gone', ["x"], "", None),
        ('cd /srv; chmod -R +x .; exec /srv/shut', ["x"], "", None),
        ('cd /; chmod -R 755 srv; exec /srv/shut', ["x"], "", None),
        ('chmod -R 755 ./srv; exec srv/shut', ["x"], "", None),
        ('chown "$U:$G" /srv/shut; exec gosu redis /srv/shut', ["x"], "", None),
        ('chown redis /srv/*; exec gosu redis /srv/shut', ["x"], "", None),
        ("sed -i 's/\\r//' /srv/*\nexec /srv/windows", ["x"], "", None),
        ('echo u | tee -a /etc/passwd; exec gosu u server', ["x"], "", None),
        ("sed -i '$a u' /etc/passwd; exec gosu u server", ["x"], "", None),
        ('server; case "$1" in a) ;; esac', ["x"], "", None),
        ('f() { case "$1" in W) ;; esac; }\nf I', ["x"], "", None),
        ('case "$1" in a) ;; esac; echo > /srv/c', ["x"], "", None),
        ('chmod --reference=/bin/sh /srv/shut; exec /srv/shut', ["x"], "", None),
        ("sed -i -es/x/y/ /srv/windows; exec /srv/windows", ["x"], "", None),
        (REFUSES, ["help"], "", None),
        (IGNORES + ". /srv/env\n", ["server"], "", None),
        ('set -e; W=${W:-$(gone)}; exec server', ["x"], "", None),
        ('if ( gone ) > /srv/l 2>&1; then exec gone; fi; exec server', ["x"], "", None),
        ('set -e; ls /tmp/!(gone); exec server', ["x"], "", None),
        ('echo "${A:-it\'s x}"\n[ "$A" ] && exec server\necho "${B:-can\'t start}"; exit 1', ["x"], "", None),
        ('n=0; : $((n+=1)); [ "$n" -gt 0 ] || exit 1; exec server', ["x"], "", None),
        ('n=2; : $((n == 2)); [ "$n" -gt 0 ] && exec gone; exec server', ["x"], "", GONE),
        ('SECONDS=0; [ "$SECONDS" = 0 ] && exit 1; exec server', ["x"], "", None),
        ('trap "A=server" DEBUG; A=gone; exec "$A"', ["x"], "", None),
        ('command_not_found_handle() { :; }; set -e; gone; exec server', ["x"], "", None),
        ('A=gone; shopt -s lastpipe; echo server | read -r A; exec "$A"', ["x"], "", None),
        ('for i in 1 2; do [ -x /srv/gone ] && break; sleep 1; done; exec /srv/gone', ["x"], "", None),
        ('until command -v gone; do sleep 1; done; exec gone', ["x"], "", None),
        ('w() { which gone; }; until w; do sleep 1; done; exec gone', ["x"], "", None),
        ('until test -n x; do sleep 1; done; exec gone', ["x"], "", GONE),
        ('while read l; do mk() { server; }; done <<< x\nmk || exit 1', ["x"], "", None),
        ('set -e; while read l; do set +e; done <<< x\ngone; exec server', ["x"], "", None),
        ('exec "$@" $MORE', ["gone"], "", GONE),
        ('set -e\nif [ "$A" ]; then B=1; fi\ngone\nexec bash', ["x"], "", GONE),
        ('[ "$A" ] || exit 1\ngone', ["x"], "", GONE),
        ('set -euo pipefail gone; exec "$@"', ["x"], "", GONE),
        ('exec $WITH "$@"', ["gone"], "", None),
        ('[ ² -eq 1 ]; shift ²; exec "$@"', ["gone"], "", None),
        ("exec 3>&1; exec 2>&1; exec -a name \"$@\"", ["gone"], "", GONE),
        ('f() { local A=gone; }\nA=bash; f; exec "$A"', [], "", None),
        ('f() { exec $A; }\nA=gone; A=bash f', [], "", None),
        ('A=gone; A=bash B=1; exec $A', [], "", None),
        ('A=(bash x); [ -z "$A" ] && exec gone; exec "$A"', [], "", None),
        ('A=1; ((A++)); [ "$A" = 1 ] && exec gone; exec bash', [], "", None),
        ('if [ -n $1 ]; then exec bash; fi; exec gone', [], "", None),
        ('if [ $1 != x ]; then exec gone; fi; exec bash', [], "", None),
        ('A="g*"; case "$1" in $A) exec bash ;; esac; exec gone', ["gx"], "", None),
        ('if shift 2; then exec gone; fi; exec bash', ["x"], "", None),
        ('if A=`false`; then exec gone; fi; exec bash', [], "", None),
        ('shopt -s nocasematch; case "$1" in x) exec bash ;; esac; exec gone', ["X"], "", None),
        (IGNORES + "env A=1 server\n", ["server"], "", None),
        (IGNORES + "tail -f /dev/null\n", ["server"], "", None),
        (IGNORES + "while sleep 99; do :; done\n", ["server"], "", None),
        (IGNORES + "cat /srv/x\n", ["server"], "", None),
        (IGNORES + "cat <<E\nusage\nE\n", ["server"], "", "/entry starts nothing for server"),
        ('trap "exec bash" EXIT; exit 1', ["server"], "", None),
        ('"', ["gone"], "", None),
    ],
)  # fmt: skip
def test_command_that_a_script_starts(text: str, command: list[str], missing: str, expected: str | None) -> None:
    assert lines(text, command, missing) == [expected][: bool(expected)]


def test_user_of_the_image_decides_what_a_script_starts() -> None:
    assert lines(REDIS, ["redis-server"], "usr/bin/gosu", user="redis") == []
    assert lines(REDIS, ["redis-server"], SERVER, user="redis") == ["no folder of PATH has redis-server"]


def test_word_after_a_text_is_its_name() -> None:
    entrypoint = ["sh", "-c", 'exec "$0" "$@"']
    assert lines("", ["redis-server", "x"], entrypoint=entrypoint) == []
    assert lines("", ["gone", "x"], entrypoint=entrypoint) == [GONE]


@pytest.mark.parametrize("command", [[], ["redis-server"]])
@pytest.mark.parametrize("name", ["${0##*/}", "${0#/}", "${A%/*}", "${0%%*/}"])
def test_part_of_the_script_s_name_is_no_argument(name: str, command: list[str]) -> None:
    known = lines(f'A=entry/x; NAME={name}; [ "$NAME" = entry ] || exec redis-server; exec gone', command)
    assert known == ([] if name == "${0%%*/}" else [GONE])


@every(
    "words",
    [
        ("sh", "-c", "command -v gone &> /dev/null || exit 1; exec server"),
        ("sh", "-c", "source /srv/gone.sh; exec server"),
        ("sh", "-c", "if [[ x ]]; then exec gone; fi; exec server"),
        ("sh", "-c", "command . /srv/gone.sh || true; exec server"),
        ("bash", "-O", "nocasematch", "-c", "case X in x) exec server ;; esac; exec gone"),
    ],
)
def test_text_that_another_shell_reads_otherwise(words: tuple[str, ...]) -> None:
    assert lines("", ["x"], entrypoint=words) == []


def test_bash_alone_has_the_number_of_its_user() -> None:
    for text, programs in [
        ('[ "$UID" = 0 ]', "ab"),
        ("[ x == x ]", "ab"),
        ("[ x = x ]", "a"),
    ]:
        script = f"if {text}; then exec a; fi; exec b"
        assert [asked(script, is_bash=is_bash) for is_bash in (True, False)] == ["a", programs]


def asked(text: str, *, is_bash: bool = False) -> str:
    """Return the programs that a script may start, none of which is there."""
    found: list[str] = []

    def refusal(program: Asked) -> Refusal:
        found.append(str(program.words[0]))
        return Refusal("", "")

    entry_scripts.refusal(text, ["x"], Shell("/entry", 0, bool, refusal, is_bash))
    return "".join(found)


@every(
    "text",
    [
        'A="aaaaaaaaaa"\n' + 'A="$A$A"\n' * 40 + 'exec "$A"',
        'set -- "$@" "$@"\n' * 40 + "exec a",
        '[ $# -gt 6 ] && exec gone\n' + "".join(f'if a{n}; then exec "$0" "$@" {n}; fi\n' for n in range(60)) + 'exec "$0" "$@" x',
        "if a; then " * 3000,
        "(" * 20_000,
        'x "$(' * 9000,
        "".join(f"if a; then B{number}=1; fi\n" for number in range(900)),
        "".join(f"f{number}() {{ f{number + 1}; f{number + 1}; }}\n" for number in range(40)) + "f0",
        "f() { f; f; }\nf\n",
        "f() { f " + '"$@" ' * 12 + "; }\nf a\n",
        "cat <<E\n" * 4000,
        "while a; do " * 49 + "b" + "; done" * 49,
        'exec "$0" a || exec "$0" b\n',
    ],
)  # fmt: skip
def test_script_without_end_is_given_up(text: str) -> None:
    assert lines(text, ["x"]) == []
