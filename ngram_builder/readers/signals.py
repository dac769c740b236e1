"""RedPajama-V2 stores quality signals in files beside the documents:

    documents/SNAPSHOT/SHARD/en_head.json.gz
    quality_signals/SNAPSHOT/SHARD/en_head.signals.json.gz      line i is about document i

    duplicates/SNAPSHOT/SHARD/en_head.duplicates.parquet              "doc_id": the documents that others repeat
    minhash/SNAPSHOT/SHARD/en_head.minhash.parquet                    not used

A line is {"id": "SNAPSHOT/SHARD/en_head.json.gz/i", "metadata": {"language": …}, "quality_signals": {name: [[start,
end, value], …]}}. Signals of a whole document have one entry.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.errors import InputError
from ngram_builder.readers.base import Damage, ReportDamage, Source, Unreadable, guarded
from ngram_builder.readers.files import File, kind_of
from ngram_builder.readers.packed import lines, unpacked
from ngram_builder.readers.shards import parse

# Short names for the most used signals.
_NAMES = {
    "bucket": "ccnet_bucket",
    "perplexity": "ccnet_perplexity",
    "words": "rps_doc_word_count",
    "language_score": "ccnet_language_score",
}
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})?\s*-\s*({_NUMBER})?")  # a minus sign first begins an open range: "-500", "-1000-"
_BUCKETS = ("head", "middle", "tail")  # ccnet_bucket is 0, 1, 2; some copies have the words


@dataclass(frozen=True)
class Bound:
    """The condition on one signal: one of `values`, or a number from `low` to `high`."""

    signal: str
    values: tuple[str, ...] = ()
    low: float = -float("inf")
    high: float = float("inf")

    def holds(self, value: Any) -> bool:
        if self.values:
            return _word(self.signal, value) in self.values
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Signals:
    """Selects documents by their quality signals; all bounds must hold.

    Attributes:
        unique: leave out documents that RedPajama lists as duplicates.
    """

    bounds: tuple[Bound, ...]
    unique: bool = False

    @classmethod
    def parse(cls, wanted: Sequence[str]) -> Signals:
        """Parses "language=en,de", "bucket=head,middle", "words=50-100000", "perplexity=-500", "duplicates=no", or
        any signal by its name with a range such as "-1000-", "-1000--500" or "0.5-".

        Raises InputError for anything else.
        """
        unique = [text for text in wanted if text.replace(" ", "") == "duplicates=no"]
        return cls(tuple(_bound(text) for text in wanted if text not in unique), bool(unique))

    def files_for(self, file: File) -> tuple[File | None, File | None]:
        """The files of signals and of duplicates of a shard of documents, each if it is needed. Raises InputError when
        there is none."""
        return (
            self._beside(file, "quality_signals", ".signals", "quality signals") if self.bounds else None,
            self._beside(file, "duplicates", ".duplicates", "list of duplicates") if self.unique else None,
        )

    def _beside(self, file: File, folder: str, infix: str, what: str) -> File:
        kind = kind_of(file.name)
        places = _places(file.address, folder, infix) if kind and kind[0] == "json" else []
        for place in places:
            try:
                return _file_at(place)
            except (InputError, OSError):
                continue
        looked = f": looked for {' and '.join(places)}" if places else ""
        raise InputError(f"{file} has no {what}{looked}. Omit --quality-signals, or download them.")

    def accepts(self, line: dict[str, Any]) -> bool:
        """Whether the document of this line of signals is selected; a missing signal fails its bound."""
        about, signals = line.get("metadata"), line.get("quality_signals")
        for bound in self.bounds:
            if bound.signal == "language":
                value = about.get("language") if isinstance(about, dict) else None
            else:
                spans = signals.get(bound.signal) if isinstance(signals, dict) else None
                try:
                    value = spans[0][2] if isinstance(spans, list) else None
                except (IndexError, TypeError):
                    value = None
            if not bound.holds(value):
                return False
        return True

    def selection(self, file: File, report: ReportDamage) -> SelectedDocuments:
        signals, listed = self.files_for(file)
        return SelectedDocuments(self, signals, report, _duplicates(listed) if listed else ())


class SelectedDocuments:
    """Reads a file of signals, if there is one, in step with its documents.

    Attributes:
        left_out: number of documents that are not wanted; `duplicates` of them because they are listed as duplicates.
    """

    def __init__(
        self, signals: Signals, file: File | None, report: ReportDamage, duplicates: Collection[int] = ()
    ) -> None:
        self._signals, self._file, self._report, self._listed = signals, file, report, duplicates
        self._verdicts = self._read()
        self._ended = False
        self.left_out = self.duplicates = 0

    def wanted(self, position: int) -> bool:
        """Whether to read document number `position`; called once for each, in order."""
        verdict = True if self._file is None else next(self._verdicts, None)
        if verdict is None and not self._ended and self._file:
            self._ended = True
            self._report(
                Damage(
                    self._file.address,
                    0,
                    f"ends before document {position + 1}; this and all later documents were left out",
                )
            )
        listed = bool(verdict) and position in self._listed
        self.duplicates += listed
        self.left_out += listed or not verdict
        return bool(verdict) and not listed

    def _read(self) -> Iterator[bool]:
        if self._file is None:
            return
        kind = kind_of(self._file.name.replace(".signals", ""))
        path, position = self._file.address, 0
        try:
            with closing(self._file.open()) as file:
                source = Source(path, self._report)
                for number, line in lines(unpacked(file, kind[1] if kind else "", source, lambda _: None), source):
                    if not line.strip():
                        continue
                    signals, reason = parse(line)
                    if signals is not None and _index(signals.get("id"), position) != position:
                        signals, reason = (
                            None,
                            f"is about document {_index(signals['id'], position)}, {position} expected",
                        )
                    if signals is None:
                        self._report(Damage(path, number, f"{reason}; its document was left out"))
                    position += 1
                    yield signals is not None and self._signals.accepts(signals)
        except OSError as error:
            self._report(Damage(path, 0, f"cannot be read: {error.strerror or error}"))


def _duplicates(listed: File) -> frozenset[int]:
    """The numbers of the documents that are listed as duplicates. Raises InputError."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(f"{listed}: reading Parquet needs pyarrow: pip install 'polydraft[parquet]'.") from error
    try:
        with closing(listed.open()) as opened:
            table = guarded("no list", partial(pyarrow.parquet.read_table, columns=["doc_id"]), opened)
    except (Unreadable, OSError) as error:
        raise InputError(f"{listed} cannot be read: {error}. Omit duplicates=no, or download it again.") from error
    if "doc_id" not in table.column_names:
        raise InputError(f"{listed} has no column doc_id. Omit duplicates=no, or download it again.")
    return frozenset(_index(value, -1) for value in table.column("doc_id").to_pylist())


def _file_at(address: str) -> File:
    """The file at this path or URL. Raises InputError or OSError when there is none."""
    if "://" not in address:
        return File.at(address)
    import fsspec

    system, path = fsspec.url_to_fs(address)
    return File(address, int(system.info(path).get("size") or 0), "")


def _places(address: str, beside: str, infix: str) -> list[str]:
    """Where a file may lie that belongs to a shard: in a folder `beside` that of the documents, or next to it."""
    folder, _, name = address.replace("\\", "/").rpartition("/")
    stem, dot, rest = name.partition(".json")
    signals = f"{stem}{infix}{dot}{rest}" if infix == ".signals" else f"{stem}{infix}.parquet"
    parts = folder.split("/")
    places = []
    for i in reversed(range(len(parts))):
        if parts[i] == "documents":
            places.append("/".join([*parts[:i], beside, *parts[i + 1 :], signals]))
            break
    return [*places, f"{folder}/{signals}" if folder else signals]


def _index(id: Any, otherwise: int) -> int:
    """The number at the end of an id "…/i"; copies with other ids must rely on the order."""
    last = str(id).rpartition("/")[2]
    return int(last) if last.isdecimal() else otherwise


def _word(signal: str, value: Any) -> str:
    if signal == "ccnet_bucket" and isinstance(value, int | float) and value in (0, 1, 2):
        return _BUCKETS[int(value)]
    return str(value)


def _bound(text: str) -> Bound:
    name, equals, wanted = text.partition("=")
    name, wanted = name.strip(), wanted.strip()
    signal = _NAMES.get(name, name)
    known = name == "language" or name in _NAMES or name.startswith(("ccnet_", "rps_"))
    if not known or not equals or not wanted:
        raise InputError(
            f"Quality signal {text!r} given; language=en, bucket=head,middle, words=50-100000, perplexity=-500, "
            "duplicates=no or the name of a signal and a range expected."
        )
    if (match := _RANGE.fullmatch(wanted)) and any(match.groups()):
        low, high = float(match[1] or "-inf"), float(match[2] or "inf")
        if low > high:
            raise InputError(f"Quality signal {text!r} given; the range is empty: {low:g} is more than {high:g}.")
        return Bound(signal, low=low, high=high)
    values = tuple(part.strip() for part in wanted.split(","))
    if signal == "ccnet_bucket" and not set(values) <= set(_BUCKETS):
        raise InputError(f"Bucket {wanted!r} given; some of {', '.join(_BUCKETS)} expected.")
    if name not in ("language", "bucket"):
        raise InputError(f"Quality signal {text!r} given; a range of numbers such as {name}=50-1000 expected.")
    return Bound(signal, values)
