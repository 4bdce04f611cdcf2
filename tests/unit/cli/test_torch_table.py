"""The refresh of torch's table: real wheels on a real index on loopback, read by byte ranges."""

from __future__ import annotations

import functools
import re
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from maintenance.refresh import torch_table

TORCH = {
    "torch/version.py": "__version__ = '2.0.1+cu117'\ndebug = False\ncuda = '11.7'\nhip = None\n",
    "torch/share/cmake/Caffe2/public/cuda.cmake": 'message(FATAL_ERROR "PyTorch requires CUDA 11.0 or above.")\n',
    "torch/utils/cpp_extension.py": "    supported_arches = ['8.0', '8.6',\n                        '9.0a']\n",
    "torch/lib/libtorch.so": "x" * 600_000,
}
VLLM = {
    "vllm/envs.py": 'if TYPE_CHECKING:\n    VLLM_MAIN_CUDA_VERSION: str = "13.0"\n\nvalue = "13.9"\n',
}
INSIDE = {"torch": TORCH, "vllm": VLLM}
NEEDS_TORCH = [
    "filelock",
    'nvidia-cudnn-cu11 (==8.5.0.96) ; platform_system == "Linux"',
    'nvidia-nccl-cu11==2.14.3; platform_system == "Linux"',
    'triton (==2.0.0) ; platform_system == "Linux" and platform_machine == "x86_64"',
    "triton==9.9.9; extra == 'later'",
]
NEEDS_VLLM = [
    "torch==2.14.0",
    "torchaudio==2.11.0",
    "torchvision==0.29.0",
    "torchcodec>=0.14",
    "apache-tvm-ffi==0.1.11",
    "torchvision; extra == 'x'",
]


class Handler(SimpleHTTPRequestHandler):
    """Serves files with byte ranges, as package indexes do."""

    ranges = True

    def do_GET(self) -> None:
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not span or not self.ranges:
            return super().do_GET()
        data = Path(self.translate_path(self.path)).read_bytes()[int(span[1]) : int(span[2]) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """An index with one release of every package, and the address of it."""
    for package, version, needs in [
        ("torch", "2.0.1", NEEDS_TORCH),
        ("torchvision", "0.15.2", ["numpy", "torch (==2.0.1)"]),
        ("torchaudio", "2.0.2", []),
        ("torchtext", "0.15.2", ["torch==2.0.1"]),
    ]:
        put(tmp_path, package, version, "cp310-cp310-manylinux1_x86_64", needs)
        put(tmp_path, package, version, "cp311-cp311-manylinux1_x86_64", needs)
        put(tmp_path, package, version, "cp310-cp310-manylinux2014_aarch64", needs)
        put(tmp_path, package, version, "cp313-cp313t-manylinux_2_28_x86_64", ["torch==0.0.1"])
        put(tmp_path, package, version, "cp311-cp311-win_amd64", ["torch==0.0.1"])
        put(tmp_path, package, "0.1.0", "cp310-cp310-manylinux1_x86_64", ["torch==0.0.1"])
    put(tmp_path, "torchtext", "0.15.2", "cp312-cp312-manylinux1_x86_64", ["torch==2.2.0"])
    put(tmp_path, "xformers", "0.0.31.post1", "cp39-abi3-manylinux_2_28_x86_64", ["numpy", "torch==2.7.1"])
    put(tmp_path, "vllm", "0.33.0", "cp38-abi3-manylinux_2_28_x86_64", NEEDS_VLLM, pythons="<3.15, >=3.11")
    put(tmp_path, "vllm", "0.11.2", "cp38-abi3-manylinux1_x86_64", ["torch==2.9.0"], pythons=">=3.10")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def put(root: Path, package: str, version: str, tag: str, needs: list[str], pythons: str = "") -> None:
    """Add a wheel to the index and its link to the project's page."""
    folder, name = root / package, f"{package}-{version}-{tag}.whl"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, text in INSIDE.get(package, {}).items():
            wheel.writestr(path, text)
        lines = [f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}", *(f"Requires-Dist: {n}" for n in needs)]
        lines += [f"Requires-Python: {pythons}"] if pythons else []
        wheel.writestr(f"{package}-{version}.dist-info/METADATA", "\n".join(lines) + "\n\nText.\n")
    with (folder / "index.html").open("a") as page:
        page.write(f'<a href="{name}#sha256=0">{name}</a><br/>\n')


def test_torch_table_has_what_the_wheels_say(index: str, tmp_path: Path) -> None:
    target = tmp_path / "out.toml"
    torch_table.main(["--index-url", index, "--output", str(target)])
    tables = tomllib.loads(target.read_text())
    assert list(tables) == ["torch", "vision", "audio", "text", "xformers", "vllm"]
    assert tables["torch"] == {
        "2.0.1": {
            "cuda": "11.7",
            "cuda_min": "11.0",
            "archs": "8.0 8.6 9.0a",
            "triton": "==2.0.0",
            "nccl": "==2.14.3",
            "cudnn": "==8.5.0.96",
            "python": ["3.10", "3.11"],
            "python_arm64": ["3.10"],
        }
    }
    assert tables["vision"]["0.15.2"] == {"torch": "==2.0.1", "python": ["3.10", "3.11"], "python_arm64": ["3.10"]}
    assert tables["audio"]["2.0.2"]["torch"] == ""
    # One of its wheels was built for another torch: its Python is left out.
    assert tables["text"]["0.15.2"]["python"] == ["3.10", "3.11"]
    assert tables["xformers"] == {"0.0.31.post1": {"torch": "==2.7.1", "python": ["*"], "python_arm64": []}}
    assert tables["vllm"] == {
        "0.33.0": {
            "torch": "==2.14.0",
            "cuda": "13.0",
            "vision": "==0.29.0",
            "audio": "==2.11.0",
            "tvm_ffi": "==0.1.11",
            "pythons": "<3.15,>=3.11",
            "python": ["*"],
            "python_arm64": [],
        }
    }
    assert target.read_text().startswith("# GENERATED")


def test_torch_table_failed_refresh_keeps_the_file(index: str, tmp_path: Path) -> None:
    target = tmp_path / "out.toml"
    target.write_text("before")
    (tmp_path / "xformers" / "index.html").unlink()
    (tmp_path / "xformers").rename(tmp_path / "gone")
    with pytest.raises(SystemExit, match=r"refresh: .*404 Client Error.*; nothing was written"):
        torch_table.main(["--index-url", index, "--output", str(target)])
    assert target.read_text() == "before"
    assert not target.with_suffix(".new").exists()


def test_torch_table_index_without_byte_ranges_is_refused(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "ranges", False)
    with pytest.raises(SystemExit, match=r"does not serve byte ranges of torch-2\.0\.1-cp31"):
        torch_table.main(["--index-url", index, "--output", str(tmp_path / "out.toml")])
