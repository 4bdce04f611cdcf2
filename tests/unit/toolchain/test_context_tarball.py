"""The build context as the provider streams it."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from pathlib import Path

from toolchain.provider.docker_api.tarball import write


def test_context_tarball_has_all_kinds_of_files_but_sockets(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o750)
    (tmp_path / "folder/file").write_text("content")
    (tmp_path / "hard").hardlink_to(tmp_path / "folder/file")
    (tmp_path / "link").symlink_to("folder/../nowhere")
    (tmp_path / "left-out").write_text("")
    (tmp_path / "replaced").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    stream = io.BytesIO()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        write(stream, str(tmp_path), ["left-out"], {"replaced": b"new"})
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        members = {member.name: member for member in archive}
        assert {name: member.type for name, member in members.items()} == {
            "folder": tarfile.DIRTYPE,
            "folder/file": tarfile.REGTYPE,
            "hard": tarfile.LNKTYPE,
            "link": tarfile.SYMTYPE,
            "pipe": tarfile.FIFOTYPE,
            "replaced": tarfile.REGTYPE,
        }
        contents = {
            name: file.read() for name in members if members[name].isreg() and (file := archive.extractfile(name))
        }
    assert contents == {"folder/file": b"content", "replaced": b"new"}
    assert (members["hard"].linkname, members["link"].linkname) == ("folder/file", "folder/../nowhere")
    assert (members["folder"].mode, members["replaced"].mode) == (0o750, 0o600)
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}
