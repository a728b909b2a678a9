"""A record is read back as it was written, or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from rl_core.digests import FileRecord
from rl_core.storage.store import Record, parse_record

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
files = st.builds(FileRecord, sha256=st.text("0123456789abcdef", min_size=64, max_size=64), size=st.integers(0, 2**50))
paths = st.text(st.characters(exclude_characters="/.\x00", exclude_categories=["Cs"]), min_size=1)
records = st.builds(
    Record, name=st.text(), facts=st.dictionaries(st.text(), json_values), files=st.dictionaries(paths, files)
)


@given(records)
def test_a_record_is_read_back_as_it_was_written(record):
    assert parse_record(record.to_bytes()) == record


@given(records, st.data())
def test_a_torn_or_altered_record_is_none(record, data):
    whole = record.to_bytes()
    assert parse_record(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    place = data.draw(st.integers(0, len(whole) - 1))
    altered = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    assert parse_record(altered) in (None, record)  # white space may change


def test_a_path_that_leads_out_of_the_run_is_none():
    file = FileRecord(sha256="0" * 64, size=1)
    for path in ("../victim", "/etc/passwd", "data/../../victim"):
        assert parse_record(Record(name="stage", facts={}, files={path: file}).to_bytes()) is None
