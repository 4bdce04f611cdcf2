"""What an image starts, beside real containers of it: each entry point as the engine, runc and the kernel take it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from containers.image.binaries import contents
from containers.image.binaries.elf_file import X86_64
from containers.image.layers.layer import index
from containers.starting import started_programs
from tests.images.engine import Image, base_image, docker, remove, unique

_DOCKERFILE = """FROM {base}
RUN apt-get update -qq && apt-get install -qqy --no-install-recommends python3 tini dumb-init gosu sudo numactl runit s6 busybox mksh zsh > /dev/null
RUN mkdir /s && python3 -c 'import json; [open(f"/s/{{name}}", "w").write(text) for name, text in json.loads(bytes.fromhex("{scripts}")).items()]' && chmod 755 /s/*
RUN useradd --uid 1000 --groups video app && mkdir -p /t/closed && cd /t && cp /bin/true real && : > empty && echo text > text \\
 && printf '#!/t/real\\n' > s1 && for n in 2 3 4 5 6; do printf "#!/t/s$((n-1))\\n" > s$n; done \\
 && printf '#!/bin/sh\\r\\n' > crlf && printf '#!/t/gone\\n' > gone-interpreter && printf '#!/usr/bin/env -S gone -u\\n' > env-gone \\
 && printf '#!/usr/bin/env true\\n' > env && printf "#!/t/real%4096s\\n" | tr ' ' a > long && printf '#!/t/real %4096s\\n' a > long-argument \\
 && printf '#!/bin/sh\\nexec "$@"\\n' > wrapper && printf '#!/usr/bin/env bash\\nexec "$@"\\n' > wrapper-by-env && ln -s loop loop && ln -s /t/nowhere dangling && ln -s real link \\
 && head -c 64 /bin/true > header && cp /bin/true arm && printf '\\267\\0' | dd of=arm bs=1 seek=18 conv=notrunc 2>/dev/null \\
 && find /t -type f -exec chmod 755 {{}} + && cp real closed/real && chmod 750 closed && cp real mode && chmod 754 mode && printf '#!/bin/sh\\n' > unreadable && chmod 711 unreadable \\
 && cp real group && chgrp video group && chmod 750 group && cp real plain && chmod 644 plain \\
 && mkdir -p sub/dir pkg ready && cp real sub/run && ln -s sub linked && ln -s ../gone sub/dangling && touch pkg/__init__.py ready/__init__.py ready/__main__.py module.py \\
 && printf '#!/usr/bin/env -S true -u\\r\\n' > env-crlf && printf '#!/usr/bin/env python3 -u\\n' > env-words && printf '#!/usr/bin/env -S ${{NAME}} x\\n' > env-variable \\
 && printf '\\357\\273\\277#!/bin/sh\\n' > bom && printf '\\n#!/bin/sh\\n' > late && printf '#!/bin/sh -e\\r\\n' > crlf-option && printf 'exit 0\\n' > plain-text \\
 && ln real hard && ln -s /t/hard c1 && ln -s c1 c2 && ln -s c2 c3 && ln -s closed/real into-closed && chmod 755 bom late crlf-option plain-text env-*
"""


PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"


class Case(NamedTuple):
    """What is started, by whom and where."""

    words: tuple[str, ...]
    user: str = ""
    folder: str = ""
    environment: tuple[str, ...] = (PATH,)

    @property
    def by_runtime(self) -> bool:
        """Whether the runtime's own rules count: of users, of names and of folders; the kernel's are the same in one container."""
        return bool(self.user) or self.words[0] in {"true", "true --help", "gone", "run"} or self in _BY_RUNTIME


def shell(text: str, *arguments: str, program: str = "/bin/sh", folder: str = "", path: str = PATH) -> Case:
    return Case((program, "-c", text, *arguments), folder=folder, environment=(path,))


_BY_RUNTIME = [
    *(Case((f"/t/{name}",)) for name in ["real", "crlf", "empty", "gone"]),
    *(Case(("/t/real",), folder=folder) for folder in ["/t/real", "/t/new"]),
]
TEXTS = [
    # Those that start, or go on after what does not.
    *("exec 2>&1; exec true", "exec 3</dev/null; true", "2>/dev/null exec true", "nice > /dev/null true", "env > /etc/environment && exec true"),
    *('trap "" HUP && exec true', "set -e\nexport A=1 # a && b\nexec true", "A=`echo x gone` && exec true", "A=${A:---host x --port 80} && exec true $A"),
    *('A="${B:-"x; gone"}" && exec true', "echo a\\;gone && exec true", "# don't; do\nexec true", "trap 'exit 0' EXIT; gone", "exec true; gone"),
    *("gone && echo gpu; exec true", "gone && echo a || echo b; exec true", "set -e; gone && x; true", "timeout 3 gone || true", "python3 -m gone || exec true"),
    *("gone | cat", "cd /t && gone | cat", "exec gone | cat", "exec gone & exec true", "gone || exit 0", "gone || exit 1 | cat", "gone & wait", "gone $(true) || true"),
    *("gosu app gone; exec true", "set -e; id gone && exec gone; true", "set +e; gone; true", ". /t/text; exec true", "A=true; exec nice $A", "exec nice ${HOME:+}/bin/true"),
    *("PYTHONPATH=/t exec python3 -m module", "export PYTHONPATH=/t && exec python3 -m module", 'export "PATH=/t:$PATH"; exec real', "PATH=/t:$PATH exec env real"),
    *("cd /t/linked && cd ../sub && ./run", "cd /t/linked/../sub && ./run", "env -C/t ./real", "env PYTHONPATH=/t python3 -m module"),
    *("[ -f /x ] || PATH=/t; exec real", "[ -f /t/real ] && exit 0; exec gone", "until test -n x; do sleep 1; done; exec true", "until test -e /t; do sleep 1; done; exec true", "[ 'x' ]", "['x'] || exec true"),
    *("[ -f /x ] && A=/x; exec nice /t/real", "while test -z x; do exec gone; done; exec true", "[ -f /x ] || exec true; exec gone"),
    # Those that do not.
    *('[ -n "$A" ] && export B=1; exec gone', "test -f /t/real || exit 3; exec gone", "until test -n x; do sleep 1; done; exec gone", "['true', '--x']", '["true", ]'),
    *("set -e; . /t/gone.sh; exec true", ". /t/activate && exec true", ". /t/gone.sh || exit 1; exec true", "cd /t && . ./gone.sh && exec true"),
    *("gone && true", "gone && true || exit 1", "gone || exit 3; true", "gone ;", "exec gone; true", "exec gone 2>&1", "set -o errexit; gone; true", "true\r\n"),
    *("exec nice gone --x $A", "# first; second\nexec gone # && true", 'exec gone --x "{\\"a\\": 1}"', "export LD_LIBRARY_PATH=/x && exec gone", "exec nice '$A'"),
]  # fmt: skip
SCRIPTS = {
    f"{shell}{number}": f"#!/bin/{shell}\n{text}\n"
    for shell in ["sh", "bash"]
    for number, text in enumerate([
        *('exec gone "$@"', 'exec "$@"', 'set -- true; exec "$@"', 'shift; exec "$@"', '. /t/plain-text; exec "$@"', "set -e; mkdir -p /tmp/a; exec /t/gone"),
        *("set -e; ( cd /t; exec ./real )", "set -e; ( cd /t; exec ./gone )", "( cd /t && exec ./gone )", "(cd /t; ./gone); true", "set -e; (cd /t; ./gone); true"),
        *("set -e; (cd /t; ./gone) || true", "set -e; (cd /t; ./gone; true) && true; true", "set -e; (cd /t; ./gone; true); true", "(gone) | cat", "f() (gone); true"),
        *("set -e; (gone) > /dev/null 2>&1; true", "gone && ( x || exit 1; ); true", "true || (gone)", "((0)) && exec gone; true", "( (true) ); true"),
        *('exec "$(dirname "$0")/true"', 'exec "$(dirname "$0")/gone"', 'exec "$(dirname -- "$0")/gone"', 'exec "${0%/*}/true"', 'exec "${0%/*}/gone"'),
        *('exec "$(cd "$(dirname "$0")" && pwd)/true"', 'exec "$(cd "$(dirname "$0")" && pwd)/gone"', "exec $(dirname $0)/gone"),
        *('cd "$(dirname "$0")" && exec ./true', 'cd "$(dirname "$0")/.." && exec ./t/real', 'HERE="$(cd "$(dirname "$0")" && pwd)"; exec "$HERE/gone"', 'A=/t; A=/x true; exec "$A/real"'),
        *("A=/t; export B=$A/sub; exec $B/run", "A=/t; export B=$A/sub; exec $B/gone", 'A=/t; (A=/x); exec "$A/real"'),
        *('if [ -z "$A" ]; then echo a; fi; exec /t/gone', "if true; then exec /t/real; fi; exec /t/gone", "A=/t/gone; if true; then A=/t/real; fi; exec $A"),
        *("if true; then if false; then exit; fi; fi; exec /t/real", "if true; then if ! false; then echo; fi; fi; exec gone", "if true; then PATH=/t; fi; exec real"),
        *('if [ "${1#-}" != "$1" ]; then\n  set -- gone "$@"\nfi\nexec "$@"', *(f"'''exec' '/t/{name}' \"$0\"\n' '''" for name in ["real", "gone"])),
        *(f'D=$(cd -- "$(dirname -- "$0")" > /dev/null 2>&1 && pwd)\nexec "$D/{name}"' for name in ["true", "gone"]),
        *("{ echo; exec /t/gone; }", "{ /t/gone; }; true", "set -e\n{ gone; }\ntrue", "{ cd /t; ./real; }", "/t/gone || { exec /t/real; }"),
        *('case "$1" in /t/r*) exec "$@" ;; *) exit 3 ;; esac', 'case "$1" in /t/g*) exec true ;; "/t/*") exec gone ;; *) exec "$1" ;; esac'),
        *('if [ "$1" = /t/real -a "$(id -u)" = 0 ]; then exec gosu app "$@"; fi\nexec "$@"', 'if [ "$(id -u)" != 0 ]; then exec true; fi\nexec "$@"'),
        *('f() {\n  cat <<-EOM\n\t\tif (\n\tEOM\n  set -- gone\n}\nf\nexec "$@"', 'main() { set -- "$1"; exec "$@"; }\nmain "$@"', 'f() { return 1; }\nf && exec gone\nexec "$@"'),
        *('for p in /t/none /t/real; do [ -x "$p" ] && exec "$p"; done; exec gone', 'P=gone; for p in /t/none "$1"; do if [ -x "$p" ]; then P=$p; break; fi; done; exec $P'),
        *('x=$(cp /t/real /tmp/made) && exec /tmp/made', 'x="$(echo "$(install /t/real /t/made)")"; exec /t/made', 'exec `cp /t/real /t/m1`/t/m1', 'case $(ln -s /t/real /t/m2) in "") exec /t/m2 ;; esac'),
        # What a command becomes that is not there.
        *('command "$1"', 'set -e; command "$@"; true', 'command exec "$1"', 'command gone || exec "$1"', 'eval "$1"', 'eval exec "$@"', 'set -e; eval "$1"; true', 'eval "set -- $1"; exec "$@"', 'eval "A=$1"; exec "$A"', 'eval "f() { exec $1; }"; f'),
        *('trap "echo x" EXIT; exec "$1"', 'trap - EXIT; exec "$1"', 'f() { echo; }; trap f EXIT TERM; exec "$1"', 'set -e; trap "echo bye" EXIT; "$1"; true', 'trap "exit 0" EXIT; "$1"'),
        *('"$@" &\nP=$!\nwait "$P"', '"$@" & wait $!; exit $?', '"$1" & wait', '"$1" & wait $! || exit 5', '"$1" & wait $! || true', 'set -e; "$1" & true', '( "$1" ) & wait $!', '"$1" & P1=$!; sleep 0 & P2=$!; wait $P1 $P2; true'),
        *('"$@"; exit $?', '"$1"; echo $?; exit 0', 'f() { "$@"; }; f "$1"', 'set -e; f() { "$1"; true; }; f "$1"', 'set -e; f() { "$1"; true; }; f "$1" || true', 'set -e; f() { "$1"; true; }; if f "$1"; then exec true; fi', 'if ! "$1"; then exit 1; fi', 'if "$1"; then true; else exit 3; fi', 'if ! "$1"; then echo no; fi; exec true', '"$1" || { echo no; exit 1; }; exec true', '"$1" || exit $?', 'for i in 1 2; do "$1" && exit 0; done; exit 1'),
        *('set -e; A=$("$1"); true', 'A=$("$1") || exit 1', 'set -e; A=$("$1" || true); true', 'set -e; echo $("$1"); true', 'A=$(gone) || true; exec "$1"', 'set -e; (set +e; "$1"; true)', 'set -e; ("$1") || true', 'set -e; "$1" && true; true', 'set -e; ! gone; exec "$1"', 'set -e; set +e; "$1"; true', 'set -e; case x in x) "$1" ;; esac; true', 'set -e; until "$1"; do break; done; true'),
        *('command -v gone > /dev/null || exec "$1"', 'which "$1" && exec "$1"', 'type "$1" > /dev/null && exec "$1"'),
        *('echo a > /tmp/a\nexec "$1"', 'echo a | tee /tmp/b; exec "$1"', 'touch /tmp/c; exec "$1"', 'exec > /tmp/log 2>&1; exec "$1"', 'cat > /tmp/e <<E\nexec gone\nE\nexec "$1"', 'cat /bin/true > /tmp/f; chmod +x /tmp/f; exec /tmp/f', 'cd /tmp; echo "print()" > made.py; exec python3 -m made', 'echo "u1:x:1234:44::/:/bin/sh" >> /etc/passwd; exec gosu u1 /t/real'),
        *('cd /t && exec "./${1##*/}"', 'cd /t; exec "$PWD/${1##*/}"', 'P=${1:+$1}; exec $P', 'A=; P=${A:-$1}; exec $P', 'cd /t/none 2>/dev/null || cd /t; exec ./real', 'cd /t/real || exec true; exec gone', 'set -e; cd /t/real; exec true', 'mkdir -p /tmp/d && cd /tmp/d && exec /t/real', 'printf a > /tmp/g && exec "$1"'),
        *('set -e; set +o errexit; "$1"; true', 'set -o errexit; "$1"; true', 'alias gone=true; gone && exec "$1"; true', 'cd "$X"; cd none && exec /t/gone || exec true'),
        *('exec setarch x86_64 "$1"', 'exec runuser -l app -c "$1"', 'exec su app -c "$1"', 'exec unshare -f "$1"', 'exec flock /tmp/l -c "$1"'),
        *('[ -f /t/text ] && A=1\nexec "$@"', 'for each in a b; do echo "$each"; done\nexec "$@"', 'A=${1%real}; [ "$A" = "$1" ] || exec gone\nexec true', '{ exec "$1"; } || true', 'exec "$@" $NONE'),
    ])
} | {
    f"of-bash{number}": f"#!/bin/bash\n{text}\n"
    for number, text in enumerate([
        *('A=("$1" --x)\nexec "${A[@]}"', 'A=(/t/gone)\nA+=(--port 1)\nexec "${A[@]}" "$@"', 'A=()\nA+=("$@")\nexec "${A[@]}"', 'declare -a A=("$@"); exec "${A[@]}"', 'A=(--a b "$@"); exec "${A[2]}"', 'A=("$1"); for a in "${A[@]}"; do exec "$a"; done', 'A=("$@"); exec "${A[0]}"', 'A=("${@:1}"); exec "${A[@]}"'),
        *('A=("$@")\nset -- "${A[@]}"\nexec "$@"', 'A=(nice -n 5); exec "${A[@]}" "$@"', 'A=($1); exec "${A[@]}"', 'A=(\n  "$1"  # the server\n  --x\n)\nexec "${A[@]}"', 'f() { local -a c=("$@"); exec "${c[@]}"; }; f "$1"', 'A=(true); A=("$1"); exec "${A[@]}"', 'A=("$1"); unset "A[0]"; exec true "${A[@]}"', 'A=("$1"); A[0]=true; exec "${A[@]}"'),
        *('A=(x); if [ "${#A[@]}" -gt 1 ]; then exec true; fi; exec "$1"', 'A=(x y); if [ "${#A[@]}" -gt 1 ]; then exec "$1"; fi; exec true', 'A=($(echo true)); exec "${A[@]}"', 'A=(); [ -n "$X" ] && A+=(--x "$X"); exec "$1" "${A[@]}"', 'A=("$1" --port "${PORT:-80}"); exec "${A[@]}"'),
        *('exec -c "$1"', 'exec -l "$1"', 'exec -cl "$1"', 'exec -c -a x "$1"', 'exec -la x "$1"', 'exec -- "$1"', 'builtin exec "$1"', 'builtin cd /t && exec ./real', 'return 0; exec "$1"'),
        *('set -eo pipefail; "$1" | cat; true', 'set -euo pipefail\n"$@" 2>&1 | tee /tmp/out', 'set -o pipefail; "$1" | cat || exit 4', 'set -e; "$1" | cat; true', 'set -euo pipefail; if "$1" | cat; then true; else true; fi', 'set -euo pipefail; A="$("$1" | cat)"; true', 'set -eu -o pipefail; "$1" | cat || exit 0', '. /t/gone.sh\nexec "$1"'),
    ])
} | {"true": "#!/bin/sh\nexit 0\n"} | {
    f"entry-{module}": f"#!/usr/bin/python3\n# -*- coding: utf-8 -*-\nimport re\nimport sys\nfrom {module} import main\n" for module in ["gone", "json.tool"]
}  # fmt: skip
FILE_READERS = [
    "python3",
    "python3 -u",
    "python3 -Werror -X utf8",
    "python3 -OO -W ignore",
    "perl",
    "perl -w",
    "env A=1 python3",
]
LAUNCHERS = [
    *("sudo -E", "sudo -u app --", "setpriv --reuid=1000 --regid=1000 --clear-groups", "setpriv --reuid 1000 --clear-groups --", "runuser -u app --"),
    *("numactl --", "taskset -c 0", "taskset 1", "chrt -b 0", "ionice -c2 -n7", "ionice -c 3", "prlimit --nofile=1024:1024", "flock /tmp/x", "setsid -f"),
    *("chpst -u app", "chpst -o 1024 -m 100000000", "s6-setuidgid app", "s6-setuidgid 1000:1000", "s6-envuidgid app", "timeout -k9 5"),
    *("setarch x86_64", "setarch -R", "linux32", "linux64 --", "s6-softlimit -o 1024", "s6-setlock -n /tmp/l", "s6-applyuidgid -u 1000 -g 1000", "flock -n /tmp/x", "flock /tmp/x -c", "flock -E 5 /tmp/x", "unshare -fp --mount-proc", "unshare -r", "nsenter -t 1 -n"),
    *("runuser app -c", "runuser -l app -c", "su -P -c", "su --session-command", "sudo A=1", "/lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2 --argv0 x", "tini -h", "tini -l", "dumb-init --help"),
    *("chroot /", "chroot --userspec=app /", "su app -c", "su - app -c", "su -s /bin/sh -c", "su --command"),
    *("busybox env A=1", "busybox timeout 5", "busybox setsid", "busybox sh -c", "busybox ash -ec", "mksh -c", "zsh -c", "zsh -o errexit -c"),
]  # fmt: skip
CASES = [
    *(shell(text, program=program) for text in TEXTS for program in ["/bin/sh", "/bin/bash"]),
    *(shell('set -- true "$@"; exec "$@"', "sh", name, program=program) for name in ["gone"] for program in ["/bin/sh", "/bin/bash"]),
    *(shell('exec nice "$@"', "sh", name) for name in ["true", "gone"]),
    Case(("/bin/bash", "-o", "errexit", "-c", "gone; true")),
    Case(("/t/wrapper-by-env", "/t/gone")),
    Case(("/t/wrapper-by-env", "/t/real")),
    *(Case((f"/t/{name}",)) for name in ["real", "s1", "s5", "s6", "crlf", "gone-interpreter", "env-gone", "env", "long", "long-argument", "loop"]),
    *(Case((f"/t/{name}",)) for name in ["dangling", "link", "empty", "text", "arm", "plain", "closed", "gone"]),
    *(Case((f"/t/{name}",), "app") for name in ["real", "s5", "closed/real", "mode", "unreadable", "group"]),
    Case(("/t/wrapper", "/t/gone")),
    Case(("/t/wrapper", "/t/real")),
    Case(("true",)),
    Case(("gone",)),
    Case(("true --help",)),
    Case(("/bin/sh", "-c", "set -e; exec gone")),
    Case(("/bin/sh", "-c", "A=1 exec /t/s5")),
    Case(("/t/real",), "1234:44"),
    Case(("/t/group",), "1234:44"),
    Case(("/t/group",), "1234"),
    Case(("/t/real",), "nobody-knows"),
    Case(("/t/real",), "app:nobody-knows"),
    *(Case((f"/t/{name}",)) for name in ["env-crlf", "env-words", "bom", "late", "crlf-option", "plain-text", "c3"]),
    *(Case(("/t/env-variable",), environment=(PATH, f"NAME={name}")) for name in ["true", "gone"]),
    Case(("/t/into-closed",), "app"),
    *(Case(words, "app") for words in [("gosu", "app", "/t/real"), ("s6-setuidgid", "app", "/t/real"), ("chpst", "-u", "app", "/t/real")]),
    *(Case((name,)) for name in ["$HOME/real", "~/real", " /t/real", "t/real"]),
    *(Case(("python3", f"/t/{name}")) for name in ["pkg", "ready", "module.py"]),
    # A folder first.
    *(shell(text) for text in ["cd /t && ./real", "cd /t && ./gone", "cd /t/sub && exec ./run", "cd /t/sub && exec ./dangling", "cd /t; cd sub; ./run", "cd /t && cd sub && ./gone"]),
    *(shell(text) for text in ["cd /t/linked && ./run", "cd /t || exit 1; ./gone", "cd /t/real && ./run", "cd -P /t && ./real", "cd && cd /t && ./real", "cd / && true"]),
    *(shell(text, folder="/t") for text in ["./real", "exec ./real", "exec ./gone", "cd sub && ./run", "cd sub && ./real"]),
    shell("exec -a name ./real", program="/bin/bash", folder="/t"),
    shell("cd /t && ./gone", program="/bin/bash"),
    Case(("/bin/bash", "-o", "pipefail", "-c", "cd /t && ./gone")),
    Case(("/bin/bash", "-euxo", "pipefail", "-c", "cd /t && ./real")),
    # What a text goes on after.
    *(shell(text) for text in ["gone; true", "gone || true", "gone || exit 1", "set -e; gone; true", "gone && true", "export A=1; exec gone", "export A=1 && /t/real"]),
    *(shell(text) for text in ["set -e\ncd /t\n./gone\n", "cd /t\n./real", "export PATH=/t; real", "export PATH=/t:/bin; /t/gone", "sleep 0; /t/gone", "A=1\n/t/gone"]),
    *(shell(text) for text in ["/t/real > /dev/null 2>&1", "/t/gone > /dev/null 2>&1", "/t/plain-text", "/t/empty", "echo ';' /t/gone"]),
    *(shell('exec "$@"', "sh", name) for name in ["true", "gone", "/t/real"]),
    # Programs that start others.
    *(Case((*launcher, name)) for launcher in [("tini", "--"), ("dumb-init",), ("gosu", "app"), ("nohup",), ("nice", "-n", "5"), ("timeout", "9"), ("stdbuf", "-oL"), ("setsid", "-w")] for name in ["/t/real", "/t/gone"]),
    # Files of languages.
    *(Case((*words.split(), file), folder=folder) for words in FILE_READERS for file, folder in [("module.py", "/t"), ("gone.py", "/t"), ("/t/gone.py", "/"), ("t/module.py", "/"), ("t/gone.py", "/")]),
    *(Case((shell, *words), folder="/t/sub") for shell in ["sh", "bash"] for words in [("./gone",), ("gone",), ("-e", "../plain-text"), ("-ex", "/t/gone"), ("-c", "true", "/t/gone"), ("-s", "/t/gone")]),
    *(Case(("python3", *words), folder="/t") for words in [("/dev/stdin",), ("-c", "0", "gone.py"), ("-m", "json"), ("-m", "json.tool", "-h"), ("-V", "gone.py"), ("-", "gone.py")]),
    *(Case(words) for name in SCRIPTS for words in [(f"/s/{name}", "/t/real"), (f"/s/{name}", "/t/gone")]),
    *(Case((*launcher.split(), name)) for launcher in LAUNCHERS for name in ["/t/real", "/t/gone"]),
    *(Case((*launcher.split(), "/t/real")) for launcher in ["bash", "sh", "sh -e --", "python3 --"]),
    *(Case(("/t/real",), "app", environment=(PATH, f"LD_PRELOAD={path}")) for path in ["/t/gone", "/t/closed/real", "/t/text"]),
    *(Case((*launcher, "/t/plain-text")) for launcher in [("tini", "--"), ("dumb-init",), ("gosu", "app"), ("env",)]),
    Case(("tini", "-g", "--", "dumb-init", "-r", "15:2", "sh", "-c", "cd /t && ./gone")),
    *(Case(("gosu", user, f"/t/{name}")) for user, name in [("app", "closed/real"), ("app", "group"), ("nobody", "group"), ("app:app", "group"), ("gone", "real")]),
    *(Case(("sh", "-c", f"exec gosu app /t/{name}")) for name in ["closed/real", "group"]),
    *(Case(("env", *words)) for words in [("-C", "/t", "./real"), ("-C", "/t", "./gone"), ("--chdir=/t", "./real"), ("-i", "/t/gone"), ("-i", "/t/real"), ("PATH=/t", "real"), ("-S", "true -x")]),
    # Folders of PATH.
    *(Case(("run",), folder="/t/sub", environment=(f"PATH={path}",)) for path in ["", ":/bin", "/bin:", ".:/bin", "/bin:/t/sub"]),
    *(shell("run", folder="/t/sub", path=f"PATH={path}") for path in ["", ":/bin", "/bin:", ".:/bin", "/bin"]),
    Case(("true",), environment=("PATH=",)),
    # Modules.
    *(Case(("python3", *words), folder="/t") for words in [("-m", "gone"), ("-m", "pkg"), ("-m", "ready"), ("-u", "-m", "module"), ("-m", "pkg.gone"), ("-mmodule",), ("-m", "json.tool", "--help"), ("-m", "gone.gone"), ("-c", "0", "-m")]),
    Case(("python3", "-m", "module"), folder="/usr", environment=(PATH, "PYTHONPATH=/t")),
    Case(("python3", "-m", "module"), folder="/usr"),
    *(Case(("python3", "-c", "0"), environment=(PATH, f"PYTHONHOME={home}")) for home in ["/usr", "/t"]),
    shell("cd /t && python3 -m module"),
    shell("cd /usr && exec python3 -m module"),
    # Folders to start in.
    Case(("/t/real",), folder="/t/real"),
    Case(("/t/real",), folder="/t/new"),
    Case(("/t/real",), "app", folder="/t/closed"),
]  # fmt: skip


_STARTS = """import json, os, subprocess, sys
def status(case):
    words, folder, environment = case
    try:
        return subprocess.run(words, cwd=folder or "/", env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode
    except OSError:
        return 127
print(json.dumps([status(case) for case in json.loads(CASES)]))
"""
"""Starts programs as a runtime does, each with its environment and in its folder."""


@pytest.fixture(scope="module")
def statuses(started: tuple[Image, contents.Contents]) -> Mapping[Case, int]:
    """Return the exit statuses of what the kernel and shells start, all of them in one container."""
    cases = [case for case in dict.fromkeys(CASES) if not case.by_runtime]
    plain = [(case.words, case.folder, dict(pair.split("=", 1) for pair in case.environment)) for case in cases]
    script = f"CASES = {json.dumps(plain)!r}\n{_STARTS}"
    rights = ["--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined"]  # of unshare and nsenter
    done = docker("run", "--rm", "--interactive", *rights, started[0].tag, "python3", "-", text=script)
    return dict(zip(cases, json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Image, contents.Contents]]:
    """Yield the image, and its files, which no case changes."""
    image, name = Image(unique("started")), unique("started").replace("/", "-").replace(":", "-")
    docker(
        "build",
        "--tag",
        image.tag,
        "-",
        text=_DOCKERFILE.format(base=base_image(), scripts=json.dumps(SCRIPTS).encode().hex()),
    )
    archive = tmp_path_factory.mktemp("started") / "files.tar"
    docker("create", f"--name={name}", image.tag, "true")
    try:
        docker("export", f"--output={archive}", name)
    finally:
        docker("rm", name)
    with archive.open("rb") as file:
        layer = index(file, "application/vnd.oci.image.layer.v1.tar", facts=contents.facts)
    yield image, contents.of([layer], {})
    remove(image)


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join((case.user or "root", *case.words, case.folder, *case.environment))
)
def test_program_is_a_fault_if_no_container_starts(
    started: tuple[Image, contents.Contents], statuses: Mapping[Case, int], case: Case
) -> None:
    image, files = started
    config = {"Entrypoint": list(case.words), "User": case.user, "Env": case.environment, "WorkingDir": case.folder}
    set_up = contents.of([], config)
    seen = replace(files, config=config, environment=set_up.environment, folder=set_up.folder)
    faults = started_programs.faults(seen, X86_64, "linux/amd64")
    status = _of_container(image, case) if case.by_runtime else statuses[case]
    assert bool(faults) == bool(status), (list(map(str, faults)), status)


def _of_container(image: Image, case: Case) -> int:
    """Return the exit status of a container of its own."""
    first, *rest = case.words
    # As in a cluster: before it starts a program, runc 1.1 has the capabilities that it will not give to the program.
    options = [f"--user={case.user}", "--cap-drop=ALL"] if case.user else []
    options += [f"--env={variable}" for variable in case.environment]
    options += [f"--workdir={case.folder}"] if case.folder else []
    return docker("run", "--rm", *options, f"--entrypoint={first}", image.tag, *rest, check=False).returncode
