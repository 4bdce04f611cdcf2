"""The form in which a stack's outputs list files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stacks.differences import file_list, listed_files

HASHES = st.text("0123456789abcdef", min_size=12, max_size=12)
PATHS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)


def test_file_list_begins_with_number_of_files() -> None:
    files = {"b/Dockerfile": "2" * 12, "a (comments only)": "1" * 12}
    assert file_list(files) == "2 files\n\n\n111111111111  a (comments only)\n222222222222  b/Dockerfile\n"


@given(st.dictionaries(PATHS, HASHES))
def test_listed_files_of_list_are_the_files(files: dict[str, str]) -> None:
    assert listed_files(file_list(files)) == files
