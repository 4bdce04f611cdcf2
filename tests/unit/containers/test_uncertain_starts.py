"""Starts of an image that only a container can judge: none of them is a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from containers.image.binaries.elf_file import X86_64
from containers.starting import started_programs
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every
from tests.helpers.image_files import BASE, SITE, Files, image

PROGRAM = elf(interpreter=LOADER)
PROGRAMS = (
    "usr/bin/env",
    "usr/bin/tini",
    "usr/bin/gosu",
    "usr/bin/timeout",
    "usr/bin/nice",
    "usr/sbin/cron",
    "usr/bin/wget",
    "usr/bin/su",
    "usr/bin/uv",
    *(f"usr/bin/{name}" for name in ("cat", "cp", "sleep", "id", "ls", "date")),
    "usr/sbin/chroot",
)
APP: Files = {
    **dict.fromkeys([*PROGRAMS, "bin/sh", "bin/bash", "usr/local/bin/python3.11"], PROGRAM),
    "opt/venv/pyvenv.cfg": "home = /usr/local/bin",
    "opt/venv/bin/python": "->/usr/local/bin/python3.11",
    "opt/venv/bin/serve": "#!/opt/venv/bin/python\n",
    "etc/passwd": "root:x:0:0::/root:\napp:x:1000:1000::/home/app:",
    "etc/group": "root:x:0:\n",
    f"{SITE}/app/__init__.py": "",
    "src/mod/__init__.py": "",
    "src/mod/main.py": "",
    "src/run": PROGRAM,
    "wrapper": '#!/bin/bash\n. /opt/activate\nexec "$@"\n',
    "wrapper-by-env": '#!/usr/bin/env bash\n. /opt/activate\nexec "$@"\n',
    "opt/conda/bin/python3.12": PROGRAM,
    "src/run.py": "#!/usr/bin/env python3.12\n",
}  # fmt: skip
MORE: Files = {
    **{f"opt/venv/bin/{name}": "#!/opt/venv/bin/python\n" for name in ("torchrun", "accelerate")},
    "usr/bin/java": PROGRAM,
    "src/run.py": "",
}
PATH = "PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/usr/sbin:/bin"
Config = Mapping[str, Any]


def entry(*words: str, **more: object) -> Config:
    return {"Entrypoint": list(words), **more}


def sh(text: str, *arguments: str, **more: object) -> Config:
    return entry("/bin/sh", "-c", text, *arguments, **more)


def health(text: str) -> Config:
    return {"Cmd": ["serve"], "Healthcheck": {"Test": ["CMD-SHELL", text]}}


def lines(config: Config, files: Files | None = None, modes: Mapping[str, tuple[int, int]] | None = None) -> list[str]:
    read = image({**APP, **(files or {})}, {"Env": [PATH], **config}, BASE, modes)
    return [str(fault) for fault in started_programs.faults(read, X86_64, "linux/amd64")]


def faultless(*configs: Config) -> Callable[[Callable[..., None]], Any]:
    return every("config", configs)


@faultless(
    entry("/wrapper", "python3.12", "-m", "vllm.main"),
    entry("/wrapper", "python", "-m", "mod.main"),
    entry("/wrapper", "./run"),
    entry("/wrapper", "bash", "-c", "./run"),
    entry("/wrapper", "/src/run.py"),
    entry("/wrapper", "tini", "--", "python3.12"),
    entry("/wrapper", "timeout", "5", "python3.12"),
    entry("/wrapper", "gosu", "web", "serve"),
    entry("/wrapper", "http://db:80/x", "--", "serve"),
    entry("/wrapper-by-env", "python", "-m", "mod.main"),
)
def test_wrapper_may_change_path_folder_and_accounts(config: Config) -> None:
    assert lines(config) == []


@faultless(
    sh("PYTHONPATH=/src exec python -m mod.main"),
    sh("export PYTHONPATH=$PYTHONPATH:/src && exec python -m mod.main"),
    sh('export "PYTHONPATH=/src"; exec python -m mod.main'),
    sh("HOME=/src exec python -m mod.main"),
    entry("env", "PYTHONPATH=/src", "python", "-m", "mod.main"),
    entry("env", "PYTHONPATH=/src", "/opt/venv/bin/python", "-m", "mod.main"),
    entry("/bin/bash", "-lc", "exec /opt/venv/bin/python -m mod.main"),
    sh("export PATH=/opt/conda/bin:$PATH && exec /src/run.py"),
    sh("PATH=/opt/conda/bin:$PATH exec /src/run.py"),
    sh("export PATH=/opt/conda/bin:$PATH && exec /usr/bin/tini -- python3.12"),
    sh(": ${PATH:=/opt/conda/bin}; exec gone"),
    sh("export $VARIABLES; exec gone"),
    entry("env", "PATH=/opt/conda/bin", "/src/run.py"),
    entry("/bin/bash", "-lc", "/src/run.py"),
    entry("/bin/bash", "-Elc", "gone"),
    entry("/bin/bash", "-c", "f x", Env=[PATH, "BASH_FUNC_f%%=() { :; }"]),
    entry("env", "-S", "${ONLY_IN_CONTAINERS} -u"),
)
def test_variables_by_which_names_are_looked_up_last(config: Config) -> None:
    assert lines(config) == []


@faultless(
    health("timeout 3 curl -f x || wget -q x || exit 1"),
    sh("timeout 3 gone || true; exec serve"),
    sh("python -m gone || exec serve"),
    sh("python -m gone; exec serve"),
    sh("gone && echo gpu; exec serve"),
    sh("gone && echo gpu || echo cpu; exec serve"),
    sh("set -e; gone && echo gpu; exec serve"),
    sh("cd /opt && gone; exec serve"),
    sh("set -e; id app && exec gone; serve"),
    sh("nvidia-smi && { echo gpu; exec /gone; }; exec serve"),
    sh("set -e; nvidia-smi && { echo gpu; /gone; }; exec serve"),
    sh("ls /x && cd /opt; exec ./run", WorkingDir="/src"),
    sh("ls /x && cd /opt || true; exec ./run", WorkingDir="/src"),
    sh("A=serve; nvidia-smi && A=/gone; exec $A"),
    sh("A=serve; nvidia-smi && export A=/gone; exec $A"),
    sh("ls /x && set -e; /gone; exec serve"),
    sh("if [ ! -x /src/gone ]; then sleep infinity; fi; exec /src/gone"),
    sh("sleep inf; exec gone"),
    sh("sleep 1d && exec gone"),
    sh("gone | cat; exec serve"),
    sh("exec gone | cat"),
    sh("cd /opt && gone | cat"),
    sh("exec gone & exec serve"),
    sh("exec serve; gone"),
    sh("gone || exit 0"),
    sh("gone || exit 1 | cat"),
    sh("gone || (exit 1)"),
    sh("gone || false; serve"),
    sh("gone; (serve)"),
    sh("gone $(date) || true"),
    sh("gone & wait"),
    sh("gosu app migrate; exec serve"),
    sh("/src/gone || true; exec serve"),
    sh("trap 'exit 0' EXIT; gone"),
    sh("set +e; gone; exec serve"),
    sh("if gone; then serve; fi"),
    sh("gone && { serve || exit 1; }; serve"),
    sh("gone && true && if serve || exit 1; then exit 0; fi; exec serve"),
    *(
        sh(f"{{ {text} }}")
        for text in ("{ gone || serve; }", "if true; then echo; fi", "(serve)", "gone ||", "{ {", "")
    ),
)
def test_text_goes_on_after_a_failure(config: Config) -> None:
    assert lines(config) == []


def test_any_number_of_blocks_is_read() -> None:
    assert lines(sh("{ " * 3000 + "serve" + "; }" * 3000)) == []
    assert lines(sh("if true; then echo; fi\n" * 1200 + "exec gone")) == [
        "/bin/sh: does not start as Entrypoint: no folder of PATH has gone"
    ]


@faultless(
    {"Cmd": ["nvidia-smi"]},
    sh("nvidia-smi && exec serve"),
    sh("set -e; nvidia-smi; exec serve"),
    health("nvidia-smi || exit 1"),
    health("timeout 5 /usr/bin/nvidia-smi > /dev/null || exit 1"),
    sh("nvidia-cuda-mps-control -d && exec serve"),
)
def test_programs_of_the_driver_come_from_the_host(config: Config) -> None:
    assert lines(config) == []


@faultless(
    sh("exec gosu $APP_USER serve"),
    sh('exec gosu "${RUN_AS:-app}" serve'),
    sh('exec tini -- "$@"', "sh", "serve"),
    sh('set -e; exec gosu app "$@"', "sh", "serve"),
    sh("exec env $OPTIONS serve"),
    sh("exec nice -n 5 $COMMAND"),
    sh("exec timeout 5 ${HOME}/bin/x"),
    sh("exec nice ~/x"),
    sh('set -- serve "$@"; exec "$@"', "sh", "--port=80"),
    entry("timeout", "-t", "5", "-s", "KILL", "serve"),
)
def test_words_that_only_a_shell_knows_are_no_names(config: Config) -> None:
    assert lines(config) == []


@faultless(
    entry("setsid", "-f", "/gone"),
    entry("sudo", "gone"),
    entry("sudo", "-i", "/gone"),
    entry("sudo", "-D", "/x", "/gone"),
    entry("taskset", "-p", "1", "/gone"),
    entry("ionice", "-p", "1", "/gone"),
    entry("runuser", "-l", "app", "/gone"),
    entry("runuser", "app", "-c", "serve"),
    entry("numactl", "--show", "/gone"),
    entry("numactl", "-c", "0", "--cpubind", "0", "serve"),
    entry("env", "discovery.type=x", "serve"),
    entry("tini", "-gp", "KILL", "serve"),
    entry("chpst", "-/", "/x", "/gone"),
    entry("zsh", "-c", "gone"),
    entry("sudo", "/closed/run"),
    entry("sudo", "/closed/run", User="app"),
    entry("sudo", "-u", "app", "-g", "web", "/closed/run"),
    entry("runuser", "-u", "app", "-G", "web", "--", "/closed/run"),
    *(
        entry("su", *words)
        for words in [
            ("app", "-c", "serve"),
            ("-", "app", "-c", "gone"),
            ("app", "-c", "/gone || serve"),
            ("-x", "-c", "/gone"),
            ("app", "/gone"),
            ("-g", "web", "app", "-c", "/closed/run"),
        ]
    ),
    *(
        entry("chroot", *words)
        for words in [
            ("/", "src/run"),
            ("--skip-chdir", "/", "./gone"),
            ("--userspec=app", "/", "serve"),
            ("--userspec=app", "--groups", "web", "/", "/closed/run"),
            ("/",),
        ]
    ),
    *(
        entry("uv", *words, WorkingDir="/src")
        for words in [
            ("run", "gone"),
            ("run", "--directory", "/x", "gone.py"),
            ("sync", "gone.py"),
            ("run", "-m", "gone.py"),
            ("run", "python", "-c", "gone.py"),
            ("run", "--with", "x.py", "run.py"),
            ("run", "rst2html.py"),
        ]
    ),
)
def test_launchers_that_start_something_else(config: Config) -> None:
    names = ("su", "chroot", "uv", "setsid", "flock", "sudo", "taskset", "ionice", "runuser", "numactl", "chpst", "zsh")
    files: Files = {**{f"usr/bin/{name}": PROGRAM for name in names}, "closed/run": PROGRAM}
    files = {**files, "src/.venv/bin/rst2html.py": "#!/src/.venv/bin/python\n"}
    assert lines(config, files, {"closed": (0o700, 0), "usr/bin/sudo": (0o4755, 0)}) == []


@faultless(
    sh("env > /etc/environment && exec cron -f"),
    sh("env >> /etc/environment; cron -f"),
    sh("exec 2>&1; exec serve"),
    sh("exec 2>&1\nexec serve\n"),
    sh("2>/dev/null exec serve"),
    sh("nice > /log serve"),
    sh("exec serve 2>&1 > '/a b'"),
    {"Cmd": ["serve"], "Healthcheck": {"Test": ["CMD", "bash", "-c", "exec 3</dev/tcp/localhost/80"]}},
)
def test_redirections_are_no_words(config: Config) -> None:
    assert lines(config) == []


@faultless(
    sh('trap "" HUP && exec serve'),
    sh("set -e; trap '' HUP; exec serve"),
    sh("set -e\nexport A=1 # port && host\nexec serve"),
    sh("# don't; do\nexec serve"),
    sh("export A=" + "x" * 4076 + " && exec serve"),
    sh("OPTIONS=${OPTIONS:---host 0.0.0.0 --port 80} && exec serve $OPTIONS"),
    sh('A="${B:-"x; gone"}" && exec serve'),
    sh("A=`echo x gone` && exec serve"),
    sh('echo "a && gone" && exec serve'),
    sh("echo a\\;gone && exec serve"),
    sh("chdir /src && ./run"),
    entry("env", "-C/src", "./run"),
    entry("/bin/bash", "-c", "A=(a gone) && exec serve"),
)
def test_text_is_read_as_shells_read_it(config: Config) -> None:
    assert lines(config) == []


LOCAL = ".local/lib/python3.11/site-packages/far/__main__.py"


@every(
    "files, config",
    [
        ({}, entry("python", "-m", "far", Env=[PATH, "PYTHONPATH=/mnt/code"], WorkingDir="/src")),
        ({}, entry("python", "-m", "far", Env=[PATH, "PYTHONPATH=/src"], WorkingDir="/opt", Volumes={"/src": {}})),
        ({"opt/app.zip": "PK"}, entry("python", "-m", "far", Env=[PATH, "PYTHONPATH=/opt/app.zip"], WorkingDir="/src")),
        ({f"srv/{LOCAL}": ""}, entry("python3.11", "-m", "far", Env=[PATH, "PYTHONUSERBASE=/srv/.local"], WorkingDir="/src")),
        ({f"srv/base/{LOCAL.removeprefix('.local/')}": ""}, entry("python3.11", "-m", "far", Env=[PATH, "PYTHONUSERBASE=/srv/base"], WorkingDir="/src")),
        ({f"opt/airflow/{LOCAL}": ""}, entry("python3.11", "-m", "far", WorkingDir="/src")),
        ({"usr/bin/python3.11": PROGRAM, "usr/lib/python3/dist-packages/x.pth": "/src"}, entry("/usr/bin/python3.11", "-m", "mod.main")),
        ({"opt/venv/pyvenv.cfg": "home = /usr/local/bin", f"usr/local/{LOCAL.removeprefix('.local/')}": ""}, entry("python", "-m", "far")),
        ({f"{SITE}/sitecustomize.py": ""}, entry("python", "-m", "mod.main")),
        ({"hooks/sitecustomize.py": ""}, entry("python", "-m", "mod.main", Env=[PATH, "PYTHONPATH=/hooks"])),
        ({f"{SITE}/app/__init__.py": "__path__ = extend_path"}, entry("python", "-m", "app.far")),
        ({}, entry("python", "-I", "-c", "0", Env=[PATH, "PYTHONHOME=/gone"])),
    ],
)  # fmt: skip
def test_python_looks_for_modules_in_many_places(files: Files, config: Config) -> None:
    assert [line for line in lines(config, files) if "does not start as" in line] == []


@faultless(
    sh("cd /empty && ./train.sh"),
    sh("exec ./train.sh", WorkingDir="/empty"),
    entry("/empty/train.sh"),
    sh("cd /src && ./train.sh", Volumes={"/src": {}}),
    sh("exec ./train.sh", WorkingDir="/src", Volumes={"/src": {}}),
    entry("/src/train.sh", Volumes={"/src/": {}}),
    entry("train.sh", Env=["PATH=/bin:/src"], Volumes={"/src": {}}),
    sh("cd /src && exec python -m train", Volumes={"/src": {}}),
    sh("cd /link && cd ../src && ./run"),
    sh("cd /link/../src && ./run"),
)
def test_volumes_and_empty_folders_get_files_in_a_container(config: Config) -> None:
    assert lines(config, {"link": "->opt/venv/bin"}, {"empty": (0o755, 0)}) == []


@faultless(
    entry("/run/app/tool"),
    entry("tool", Env=["PATH=/usr/local/bin"]),
    entry("data", Env=["PATH=/usr/local/bin"]),
    entry("python", "/mnt/app/gone.py"),
    entry("/tmp/x/start"),
    entry("python", "gone.py", WorkingDir="/tmp/x"),
    entry("python", "-m", "gone", WorkingDir="/tmp/x"),
    sh("cd /var/tmp && exec ./gone"),
)
def test_files_of_a_running_system_and_of_mounts_come_later(config: Config) -> None:
    links: Files = {"usr/local/bin/tool": "->/var/run/app/tool", "usr/local/bin/data": "->/mnt/app/data"}
    assert lines(config, {**links, "mnt/app/x": "", "tmp/x/y": "", "var/tmp/x": ""}) == []


@faultless(entry("python3", "gone.py", WorkingDir="/src"), entry("java", "-jar", "gone.jar", WorkingDir="/src"))
def test_script_of_a_shell_may_enter_a_folder_first(config: Config) -> None:
    names = {"python3": "/usr/local/bin/python3.11", "java": "/usr/bin/java"}
    files: Files = {f"opt/venv/bin/{name}": f'#!/bin/sh\ncd /x\nexec {to} "$@"\n' for name, to in names.items()}
    assert lines(config, {**MORE, **files}) == []


@every(
    "text",
    [
        "set -- serve\nexec \"$@\"",
        "shift\nexec \"$@\"",
        "if [ -d \"$1\" ]; then exec serve \"$@\"; fi\nexec \"$@\"",
        "case $1 in\n  bash) exec \"$@\" ;;\nesac\nexec serve \"$@\"",
        "case $1 in\n  *.yml) serve; exit 0 ;;\nesac\nexec \"$@\"",
        "A=/; A=/gone true; exec \"$A/src/run\"",
        "A=/src; A+=/x; exec $A/gone",
        "A=$(echo /src); exec $A/gone",
        "gone && ( x || exit 1; ); true",
        "set -e; (cd /src; ./gone; true) && true; true",
        "(cd /src; ./gone); true",
        "(./gone) &",
        "((1)) && exec gone; true",
        "f() (gone); true",
        "cd /src; exec \"$(dirname \"$0\")/run\"",
        "mkdir /etc && exec /gone; true",
        f"set -e; : {'x' * 33000}; exec gone; 'open",
        f"gone\n#{'x' * 33000}\nexec serve",
        f"set -e\n#{'x' * 32745}\nserve",
        "gone\n# a folder\\\nexec serve",
        "echo \"a # b\" \\\n  c\ngone # d\\\nexec serve",
        "cd /src ||\n  gone",
        "exec gone || : & exec serve",
        "gone || exit 1 ||\n : &",
        "A=/gone; printf -v A /src/run; exec $A",
        "PWD=/gone; cd /src; exec $PWD/run",
        "IFS=:; A=/src/run:x; exec $A",
        "A=/src/run:x; export IFS=:; exec $A",
        "export \"IFS=:\"; A=/src/run:x; exec $A",
        "A=/src; export A=/gone B=$A/run; exec $B",
        "A=/gone; export \"A=/src/run\"; exec $A",
        *("if true; then exec /src/run; fi\nexec /gone", "if true; then PATH=/src; fi\nexec run", "if true; then export PATH=/src; fi; exec run"),
        *("if true; then exit 0; fi\nexec /gone", "if true; then { exit 0; }; fi; exec /gone", "if true; then cp /src/run /gone; fi\nexec /gone"),
        *("A=/gone; if true; then A=/src/run; fi; exec $A", "if true; then IFS=:; fi; A=/src/run:x; exec $A", "if true; then cat /x > /gone; fi\nexec /gone"),
        *("if true; then eval exec /src/run; fi; exec /gone", "if true; then cd /src; fi; exec ./run", "if true; then echo; fi || exec /gone", "if true; then echo; fi &\nexec /src/run"),
        *("{ /gone; }; true", "{ /gone; } | cat", "cd /gone || { exec /src/run; }", "/gone || { exec /src/run; }", "if true; then export \"PATH=/src\"; fi; exec run"),
        *("f() { exec /gone; }\nexec /src/run", "case a in a) exec /src/run;; esac\nexec /gone", "while true; do exec /src/run; done\nexec /gone", "if true; then trap 'exit 0' EXIT; fi; /gone"),
    ],
)  # fmt: skip
def test_script_whose_arguments_or_paths_are_not_certain(text: str) -> None:
    files: Files = {"src/start": f"#!/bin/sh\n{text}\n"}
    assert lines(entry("/src/start", "/etc/gone.yml"), files) == []


@faultless(
    entry("/proc/self/exe"),
    entry("bash", "/dev/stdin"),
    entry("python", "/proc/self/fd/0"),
    sh("exec bash /dev/stdin"),
)
def test_files_of_the_runtime_are_in_each_container(config: Config) -> None:
    assert lines(config, {"dev/stdin": "->/proc/self/fd/0", "proc/x": "", "dev/x": ""}) == []


@faultless(
    entry("python", "gone.py", WorkingDir="/nothing"),
    entry("python", "gone.py", WorkingDir="/src", Volumes={"/src": {}}),
    entry("python", "/nothing/gone.py"),
    entry("python", "-c", "0", "/src/gone.py"),
    entry("python", "-m", "mod", "/src/gone.py", WorkingDir="/mounted"),
    entry("python", "-", "/src/gone.py"),
    entry("python", "-V", "/src/gone.py"),
    entry("python", "-X", "/src/gone.py"),
    entry("bash", "serve", WorkingDir="/src"),
    entry("bash", "-s", "/src/gone.sh"),
    entry("bash", "-c", "true", "/src/gone.sh"),
    entry("node", "/src/gone"),
    entry("node", "--require", "x", "/src/gone.js"),
    entry("/wrapper", "python3.11", "gone.py"),
    sh("python /src/gone.py || exec serve"),
    sh("python /src/gone.py; exec serve"),
    sh("cd $HOME && exec python gone.py", WorkingDir="/src"),
    entry("python", "-m", "json.tool"),
    entry("python", "-m", "json.gone"),
    entry("java", "-cp", "gone.jar", "Main", WorkingDir="/src"),
    entry("java", "@gone.jar", WorkingDir="/src"),
    entry("java", "-jar", "gone.jar", WorkingDir="/nothing"),
    entry("torchrun", "-m", "gone.py", WorkingDir="/src"),
    entry("torchrun", "--rdzv-conf", "x.py", "run.py", WorkingDir="/src"),
    entry("torchrun", "--nproc_per_node=2", "run.py", WorkingDir="/src"),
    entry("torchrun", "gone.py", WorkingDir="/nothing"),
    entry("torchrun", "gone.py", WorkingDir="/src", Env=[PATH, "PET_MODULE=1"]),
    entry("uv", "run", "gone.py", WorkingDir="/src", Env=[PATH, "UV_WORKING_DIR=/x"]),
    entry("uv", "run", "gone.py", WorkingDir="/src", Env=[PATH, "UV_WORKING_DIRECTORY=/x"]),
    entry("env", "PET_MODULE=1", "torchrun", "gone.py", WorkingDir="/src"),
    entry("accelerate", "config", "gone.py", WorkingDir="/src"),
)
def test_file_of_a_language_that_may_come_later(config: Config) -> None:
    files: Files = {**MORE, "usr/bin/node": PROGRAM, "usr/local/lib/python3.11/json/__init__.py": ""}
    assert lines(config, files) == []


@every(
    "config",
    [
        entry("python", "gone.py", WorkingDir="/src"),
        entry("python", "-u", "-X", "dev", "/src/gone.py"),
        entry("python", "-W", "error", "-u", "/src/gone.py", "--x"),
        entry("bash", "-ex", "/src/gone.py"),
        entry("bash", "-o", "pipefail", "./gone.py", WorkingDir="/src"),
        entry("/wrapper", "python3.11", "/src/gone.py"),
        sh("cd /src && exec python gone.py"),
        entry(
            "torchrun", "--standalone", "--nproc_per_node=8", "--nnodes", "1", "gone.py", "--lr", "1", WorkingDir="/src"
        ),
        entry("tini", "--", "torchrun", "/src/gone.py"),
        entry("accelerate", "launch", "--multi_gpu", "gone.py", WorkingDir="/src"),
    ],
)
def test_file_of_a_language_that_is_not_there(config: Config) -> None:
    expected = "/src/gone.py does not exist, which"
    assert [expected for line in lines(config, MORE) if expected in line] == [expected]


def test_archive_of_java_that_is_not_there_is_a_fault() -> None:
    [line] = lines(entry("java", "-Xmx1g", "-Da=b", "-jar", "/src/gone.jar"), MORE)
    assert "/src/gone.jar does not exist, which java is to run" in line


@every("program", ["run", "/usr/local/bin/run"])
def test_link_into_a_folder_that_is_not_there_is_a_fault(program: str) -> None:
    [line] = lines(
        entry(program), {"usr/local/bin/run": "->/opt/app/now/run", "opt/app/now": "->v2", "opt/app/v1/x": ""}
    )
    assert "/opt/app/v2/run, where /usr/local/bin/run leads, does not exist" in line


def test_package_of_python_itself_without_a_main_is_a_fault() -> None:
    found = lines(entry("python", "-m", "json"), {"usr/local/lib/python3.11/json/__init__.py": ""})
    assert [line.rpartition(": ")[2] for line in found] == [
        "/usr/local/lib/python3.11/json is a package without __main__"
    ]


ROOT: Files = {
    **{f"rootfs/{path}": content for path, content in BASE.items()},
    "rootfs/bin/tool": PROGRAM,
    "rootfs/bin/sh": PROGRAM,
    "rootfs/app/run": "#!/bin/sh\nexec tool\n",
    "rootfs/app/start": "#!/bin/bash\n",
    "rootfs/app/absolute": "->/bin/tool",
    "rootfs/link": "->/src/run",
    "other": "->rootfs",
}


@faultless(
    entry("chroot", "/rootfs", "tool"),
    entry("chroot", "/rootfs", "/app/run"),
    entry("chroot", "/rootfs", "/app/absolute"),
    entry("chroot", "other", "app/run"),
    entry("chroot", "--", "/rootfs/", "sh", "-c", "cd /app && exec ./run"),
    entry("chroot", "/rootfs", "/data/run", Volumes={"/rootfs/data": {}}),
    entry("chroot", "/rootfs", "/tmp/run"),
    entry("chroot", "/host", "/gone"),
    entry("chroot", "/only-folders", "/gone"),
    entry("chroot", "/mnt", "/gone"),
    entry("chroot", ".", "serve"),
    entry("chroot", "/opt/..", "/src/run"),
    entry("chroot", "--userspec=1000", "/rootfs", "/gone"),
    entry("chroot", "/rootfs", "/gone", User="app"),
    entry("/wrapper", "chroot", "/rootfs", "/gone"),
)
def test_program_of_another_root_that_starts(config: Config) -> None:
    files: Files = {**ROOT, "usr/sbin/chroot": PROGRAM, "mnt/x": ""}
    assert lines(config, files, {"only-folders/proc": (0o755, 0)}) == []


@every(
    "words, reason",
    [
        (("/rootfs", "/src/run"), "/src/run does not exist"),
        (("/rootfs", "serve"), "no folder of PATH has serve"),
        (("/rootfs", "/app/start"), "/bin/bash does not exist"),
        (("/rootfs", "/link"), "/src/run, where /link leads, does not exist"),
        (("/rootfs/", "sh", "-c", "exec gone"), "no folder of PATH has gone"),
        (("/rootfs", "/app"), "/app is a directory"),
    ],
)
def test_program_that_another_root_lacks_is_a_fault(words: tuple[str, ...], reason: str) -> None:
    [line] = lines(entry("chroot", *words), ROOT)
    assert line.endswith(f"does not start as Entrypoint: in the root /rootfs: {reason}")


SERVERS: Files = {
    "opt/venv/bin/uvicorn": "#!/opt/venv/bin/python\n",
    "opt/venv/bin/gunicorn": "#!/opt/venv/bin/python\n",
    f"{SITE}/uvicorn/__init__.py": "",
    f"{SITE}/uvicorn/__main__.py": "",
    f"{SITE}/gunicorn/__init__.py": "",
    "src/main.py": "",
    "srv/other.py": "",
    "conf/gunicorn.conf.py": "chdir = '/src'",
    "built/extension.so": PROGRAM,
    "src/extension.so": "->/built/extension.so",
}


@faultless(
    entry("uvicorn", "main:app", WorkingDir="/src"),
    entry("uvicorn", "--port", "80", "mod.main:app", "--host=0.0.0.0", WorkingDir="/src"),
    entry("uvicorn", "--app-dir", "/src", "main:app", WorkingDir="/srv"),
    entry("uvicorn", "main:app", "--app-dir=../src", WorkingDir="/srv"),
    entry("uvicorn", "main:app", WorkingDir="/srv", Env=[PATH, "PYTHONPATH=/src"]),
    entry("python", "-m", "uvicorn", "other:app", "--app-dir", "/src", WorkingDir="/srv"),
    entry("uvicorn", "main:app", WorkingDir="/srv", Env=[PATH, "UVICORN_APP_DIR=/src"]),
    entry("uvicorn", "gone:app", "--reload", WorkingDir="/src"),
    entry("uvicorn", "gone:app", "--workers", "2", WorkingDir="/src"),
    entry("uvicorn", "gone:app", WorkingDir="/src", Env=[PATH, "WEB_CONCURRENCY=2"]),
    entry("uvicorn", "gone:app", WorkingDir="/mounted"),
    entry("uvicorn", "gone:app", WorkingDir="/src", Volumes={"/src": {}}),
    entry("uvicorn", "gone.main:app", WorkingDir="/src", Volumes={"/src/gone": {}}),
    entry("uvicorn", "mod.gone:app", WorkingDir="/src", Volumes={"/src/mod": {}}),
    entry("uvicorn", "gone:app", WorkingDir="/only-folders"),
    entry("uvicorn", "extension:app", WorkingDir="/src"),
    entry("uvicorn", "$APP", WorkingDir="/src"),
    sh("exec uvicorn main:app --port $PORT --app-dir /src", WorkingDir="/srv"),
    sh("exec tini -- uvicorn main:app --app-dir $FOLDER", WorkingDir="/srv"),
    sh("exec gunicorn main:app $OPTIONS", WorkingDir="/srv", Env=[PATH, "OPTIONS=--chdir /src"]),
    sh("export GUNICORN_CMD_ARGS=--chdir=/src; exec gunicorn main:app", WorkingDir="/srv"),
    sh("UVICORN_APP_DIR=/src exec /opt/venv/bin/uvicorn main:app", WorkingDir="/srv"),
    entry("env", "WEB_CONCURRENCY=2", "uvicorn", "gone:app", WorkingDir="/src"),
    entry("gunicorn", "main:app", WorkingDir="/src"),
    entry("gunicorn", "main", "-w4", "-b", ":80", WorkingDir="/src"),
    entry("gunicorn", "--chdir", "/src", "main:create()", WorkingDir="/srv"),
    entry("gunicorn", "--chdir", "/srv", "main:app", WorkingDir="/src"),
    entry("gunicorn", "main:app", WorkingDir="/conf"),
    entry("gunicorn", "--chdir", "/srv", "main:app", WorkingDir="/conf"),
    entry("gunicorn", "main:app", "-c", "python:x", WorkingDir="/srv"),
    entry("gunicorn", "main:app", "--pythonpath", "/src", WorkingDir="/srv"),
    entry("gunicorn", "main:app", WorkingDir="/srv", Env=[PATH, "GUNICORN_CMD_ARGS=--chdir=/src"]),
    sh("cd /src && exec uvicorn main:app"),
)
def test_application_that_its_server_may_find(config: Config) -> None:
    assert lines(config, SERVERS, {"only-folders/static": (0o755, 0)}) == []


@every(
    "config",
    [
        entry("uvicorn", "gone:app", WorkingDir="/src"),
        entry("uvicorn", "gone.main:app", "--host", "0.0.0.0", "--port=80", "--no-access-log", WorkingDir="/src"),
        entry("uvicorn", "gone:app", "--app-dir", "/srv", WorkingDir="/src"),
        entry("/opt/venv/bin/python", "-m", "uvicorn", "gone:app", WorkingDir="/src"),
        entry("gunicorn", "-k", "uvicorn.workers.UvicornWorker", "-w", "2", "gone:app", WorkingDir="/src"),
        entry("gunicorn", "-b0.0.0.0:80", "--chdir=/srv", "gone", WorkingDir="/src"),
        entry("tini", "--", "gunicorn", "gone:app", "--preload", WorkingDir="/src"),
        sh("cd /src && exec uvicorn gone:app"),
        sh("cd /src && A=80 && exec uvicorn gone:app --port $A"),
        entry("gunicorn", "--chdir=/conf", "gone", WorkingDir="/src"),
    ],
)
def test_application_that_is_not_there_is_a_fault(config: Config) -> None:
    assert [line.rpartition(": ")[2] for line in lines(config, SERVERS)] == ["Python 3.11 has no module gone"]


def test_module_that_an_application_lacks_is_a_fault() -> None:
    [line] = lines(entry("uvicorn", "mod.gone:app", WorkingDir="/src"), SERVERS)
    assert line.endswith("/src/mod has no module gone")
    [line] = lines(entry("uvicorn", "main:app", "--app-dir", "/srv", WorkingDir="/src"), SERVERS)
    assert line.endswith("Python 3.11 has no module main")


GONE = "no folder of PATH has gone"


@every(
    "text, reason",
    [
        ("exec gone", GONE),
        ('exec "$@"', GONE),
        ("if [ \"$A\" ]; then\n  exit 1\nfi\n. /x\nexec \"$@\"", ""),
        ("set -e; ( cd /src; exec ./gone ); true", "/src/gone does not exist"),
        ("set -e; cd /src; ./gone; ( true )", "/src/gone does not exist"),
        ("( cd /src && exec ./gone )", "/src/gone does not exist"),
        ("set -e; (gone) > /log 2>&1; true", GONE),
        ('exec "$(dirname "$0")/gone"', "/src/gone does not exist"),
        ("exec $(dirname -- ${BASH_SOURCE[0]})/gone", "/src/gone does not exist"),
        ('exec "${0%/*}/gone"', "/src/gone does not exist"),
        ('cd "$(dirname "$0")/mod" && exec ./gone', "/src/mod/gone does not exist"),
        ('HERE="$(cd "$(dirname "$0")" && pwd)"\nexec "$HERE/gone"', "/src/gone does not exist"),
        ("export A=/src; B=${A}/mod; exec $B/gone", "/src/mod/gone does not exist"),
        ("set -e; ls -l /data; nvidia-smi; exec gone", GONE),
        ('exec tini -- "$(dirname "$0")/gone"', "/src/gone does not exist"),
        (f"set -e; gone\n{'true' * 2000}", GONE),
        ("if [ -z \"$A\" ]; then\n  echo a\nelif grep -q x /y; then mkdir -p /z\nelse\n  B=1\nfi\n\nexec gone", GONE),
        ("if command -v nvidia-smi > /dev/null 2>&1; then if ! false; then echo gpu; fi; fi\nexec gone", GONE),
        ("{ echo a; { exec gone; }; }", GONE),
        ("{ cd /src; ./gone; }", "/src/gone does not exist"),
        ("set -e\n{ gone; }\ntrue", GONE),
    ],
)  # fmt: skip
def test_script_that_is_certain_to_fail_is_a_fault(text: str, reason: str) -> None:
    files: Files = {"src/start": f"#!/usr/bin/env bash\n{text}\n"}
    found = [line.partition(" does not start as Entrypoint: ")[2] for line in lines(entry("/src/start", "gone"), files)]
    assert found == [reason] * bool(reason)


@every(
    "config, reason",
    [
        (entry("/wrapper-by-env", "/gone"), "/gone does not exist"),
        (entry("bash", "/wrapper", "/gone"), "/gone does not exist"),
        *((entry("su", *words), "/gone does not exist") for words in [("app", "-c", "/gone"), ("-", "app", "-c", "/gone"), ("-s", "/bin/sh", "--command=/gone", "app"), ("-c", "set -e; /gone; true")]),
        *((entry("chroot", *words, "/", "/gone"), "/gone does not exist") for words in [(), ("--userspec=app:app",)]),
        (entry("chroot", "/", "gone"), "no folder of PATH has gone"),
        *((entry("uv", "run", *words, WorkingDir="/src"), "/src/gone.py does not exist, which uv is to run") for words in [("gone.py",), ("--no-sync", "-p", "3.11", "gone.py", "--x"), ("--", "gone.py"), ("python", "-u", "/src/gone.py")]),
        (entry("/wrapper", "/src/gone"), "/src/gone does not exist"),
        (sh("serve\r\n"), "serve ends with a carriage return: the text has line ends of Windows"),
        (entry("/bin/bash", "-o", "errexit", "-c", "gone; serve"), GONE),
        (sh("set -o errexit; gone; serve"), GONE),
        (sh("gone && serve"), GONE),
        (sh("gone && serve || exit 1"), GONE),
        (sh("gone || exit 3; serve"), GONE),
        (sh("gone ;"), GONE),
        (sh("{ { gone; } }"), GONE),
        (sh("exec gone; serve"), GONE),
        (sh("exec nice gone --x $Y"), GONE),
        (sh('exec gone --x "{\\"a\\": 1}"'), GONE),
        (sh("export LD_LIBRARY_PATH=/x && exec gone"), GONE),
        (sh("# first; second\nexec gone # && serve"), GONE),
        (sh('exec tini -- "$@"', "sh", "gone"), GONE),
        (sh("exec gone 2>&1"), GONE),
        (sh("cd /src && exec python -m gone"), "Python 3.11 has no module gone"),
        (entry("/nothing/gone"), "/nothing/gone does not exist"),
    ],
)  # fmt: skip
def test_certain_failure_is_a_fault(config: Config, reason: str) -> None:
    assert [line.partition(" does not start as Entrypoint: ")[2] for line in lines(config)] == [reason]
