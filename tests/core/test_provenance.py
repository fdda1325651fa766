"""What a record says of the packages under it."""

from spdnn.core import provenance


def test_the_lock_is_of_what_is_installed(tmp_path, monkeypatch):
    provenance.lock_digest.cache_clear()
    before = provenance.lock_digest()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "absent"))
    seen = {before}
    for name in ("one-1.0.dist-info", "two-1.0.egg-info"):
        (tmp_path / name).mkdir()
        provenance.lock_digest.cache_clear()
        seen.add(provenance.lock_digest())
    (tmp_path / "module.py").touch()
    provenance.lock_digest.cache_clear()
    assert provenance.lock_digest() in seen
    assert len(seen) == 3
    monkeypatch.undo()
    provenance.lock_digest.cache_clear()
    assert provenance.lock_digest() == before
