"""Compressed streams: what Kafka's clients write is read, what we write is in their form, memory is bounded."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import resource
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.records.batch import Codec, CorruptBatch
from milena.protocol.records.compression import DecompressionBomb, compress, decompress

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 8 << 20
NOISE = hashlib.shake_128(b"noise").digest(2_500_000)


@given(st.sampled_from(Codec), st.binary(max_size=2_000), st.integers(1, 200))
def test_what_is_compressed_comes_back(codec: Codec, seed: bytes, times: int) -> None:
    data = seed * times
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", Codec)
def test_sizes_around_the_block_borders_come_back(codec: Codec) -> None:
    for border in (32 << 10, 64 << 10, 256 << 10):
        for size in (border - 1, border, border + 1):
            data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
            assert decompress(codec, compress(codec, memoryview(data)), LIMIT) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-5, 1, 22))]
)
def test_every_level_is_readable_and_a_higher_one_is_no_longer(codec: Codec, levels: tuple[int, ...]) -> None:
    count = 2_000 if codec is Codec.ZSTD else 20_000  # zstd's highest level takes 19 s for ten times as much
    data = b"".join(b"%d:%d;" % (n, n * n) for n in range(count))
    compressed = [compress(codec, data, level) for level in levels]
    assert all(decompress(codec, stream, LIMIT) == data for stream in compressed)
    assert len(compressed[-1]) <= len(compressed[0])


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    stream = compress(codec, bytes(300_000))
    assert decompress(codec, stream, 300_000) == bytes(300_000)
    with pytest.raises(DecompressionBomb, match="299999 bytes"):
        decompress(codec, stream, 299_999)


def test_snappy_is_written_in_xerial_blocks_as_java_does() -> None:
    stream = compress(Codec.SNAPPY, bytes(40_000))
    assert stream[:16] == b"\x82SNAPPY\0" + b"\0\0\0\1" + b"\0\0\0\1"
    first = int.from_bytes(stream[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(stream[20 : 20 + first]) == 32 << 10


def test_bare_snappy_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 1_000)), LIMIT) == b"abc" * 1_000


def test_concatenated_xerial_streams_are_read() -> None:
    stream = compress(Codec.SNAPPY, b"one,") + compress(Codec.SNAPPY, b"two")
    assert decompress(Codec.SNAPPY, stream, LIMIT) == b"one,two"


def test_lz4_is_written_in_independent_blocks_because_java_reads_no_others() -> None:
    stream = compress(Codec.LZ4, bytes(100_000))
    assert stream[:7].hex() == "04224d18604082"
    assert stream[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(stream)) == bytes(100_000)


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])
def test_foreign_and_concatenated_frames_are_read(codec: Codec) -> None:
    foreign = gzip.compress if codec is Codec.GZIP else lambda data: bytes(cramjam.zstd.compress(data))
    assert decompress(codec, foreign(b"a" * 99_999) + foreign(b"b"), LIMIT) == b"a" * 99_999 + b"b"


@pytest.mark.parametrize("size", [0, 5, 70_000, 5_000_000])
@pytest.mark.parametrize("options", [{}, {"block_checksum": True}, {"content_checksum": True}, {"store_size": True}])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_lz4_frames_of_others_are_read(size: int, options: dict[str, bool], block_size: int) -> None:
    data = NOISE[: size // 2] + bytes(size - size // 2)
    stream = lz4.frame.compress(data, block_linked=False, block_size=block_size, **{"store_size": False} | options)
    assert decompress(Codec.LZ4, stream, LIMIT) == data


def test_a_damaged_block_with_a_checksum_is_seen_in_lz4() -> None:
    stream = bytearray(lz4.frame.compress(NOISE[:1000], block_linked=False, block_checksum=True))
    stream[-100] ^= 1
    with pytest.raises(CorruptBatch, match="lz4"):
        decompress(Codec.LZ4, stream, LIMIT)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (lz4.frame.compress(NOISE[:200_000], block_linked=True), "independent"),
        (lz4.frame.compress(b"a", block_linked=False) * 2, "follow"),
        (lz4.frame.compress(b"a", block_linked=False) + b"x", "follow"),
        (bytes.fromhex("04224d18604083") + bytes(4), "checksum of the frame"),
        (bytes.fromhex("04224d18603051") + bytes(4), "unknown size"),
        (bytes.fromhex("04224d18604082"), "truncated"),
        (bytes.fromhex("04224d18604082") + b"\x01\x00\x01\x00", "65537 bytes in a frame"),
        (b"rubbish, not a frame", "not a frame"),
    ],
    ids=[
        "linked blocks",
        "two frames",
        "a byte behind",
        "header checksum",
        "block size",
        "no end",
        "large block",
        "rubbish",
    ],
)
def test_lz4_that_java_does_not_read_is_refused(stream: bytes, why: str) -> None:
    with pytest.raises(CorruptBatch, match=why):
        decompress(Codec.LZ4, stream, LIMIT)


@pytest.mark.parametrize(
    ("codec", "unit"),
    [(Codec.GZIP, gzip.compress(b"", mtime=0)), (Codec.ZSTD, compress(Codec.ZSTD, b""))],
    ids=["gzip", "zstd"],
)
def test_very_many_streams_in_one_are_refused(codec: Codec, unit: bytes) -> None:
    assert decompress(codec, unit * 1024, LIMIT) == b""
    with pytest.raises(CorruptBatch, match="more than 1024"):
        decompress(codec, unit * 1025, LIMIT)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_bytes_behind_a_stream_are_refused(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, b"text") + b"\1\2\3", LIMIT)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_stream_cut_anywhere_is_refused_or_shorter(codec: Codec) -> None:
    data = bytes(range(256)) * 300
    stream = compress(codec, data)
    for cut in {*range(0, len(stream), max(1, len(stream) // 50)), len(stream) - 1}:
        try:
            short = decompress(codec, stream[:cut], LIMIT)
        except CorruptBatch:
            continue
        assert len(short) < len(data) and data.startswith(short)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.data())
def test_changed_streams_are_refused_or_decoded_within_the_limit(codec: Codec, data: st.DataObject) -> None:
    stream = bytearray(compress(codec, b"some text, some text, and more text" * 50))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, stream, 5_000)) <= 5_000


@given(st.sampled_from(COMPRESSING), st.binary(max_size=200))
def test_garbage_is_refused_or_decoded_within_the_limit(codec: Codec, garbage: bytes) -> None:
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, garbage, 1_000)) <= 1_000


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_refused_before_memory_is_taken() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"\0" * 20
    with pytest.raises(CorruptBatch, match="cannot become"):
        decompress(Codec.SNAPPY, claims_4_gib, 1 << 40)


BOMB = """
import resource, sys, zlib
from milena.protocol.records.compression import DecompressionBomb, Codec, decompress, compress
size = 1 << 28
codec = Codec[sys.argv[1]]
if codec is Codec.GZIP:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    stream = b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()
else:
    block = compress(codec, bytes(1 << 20))
    if codec is Codec.LZ4:
        stream = block[:7] + block[7:-4] * (size >> 20) + bytes(4)
    else:
        stream = block * (size >> 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, stream, 8 << 20)
except DecompressionBomb:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_of_256_mib_takes_little_more_memory_than_the_limit(codec: Codec) -> None:
    done = subprocess.run([sys.executable, "-c", BOMB, codec.name], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 * (8 << 10)


def test_a_zstd_window_of_128_mib_takes_no_memory_for_its_claim() -> None:
    window_of_128_mib = bytes.fromhex("28b52ffd0088")
    raw_last_block = (1 | (5 << 3)).to_bytes(3, "little") + b"hello"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert decompress(Codec.ZSTD, window_of_128_mib + raw_last_block, LIMIT) == b"hello"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


def test_cramjam_is_imported_on_first_use() -> None:
    script = (
        "import sys; from milena.protocol.records.records import Record, build_batch;"
        "from milena.protocol.records.batch import Codec;"
        "build_batch([Record(0, 0, None, b'v')], codec=Codec.GZIP); assert 'cramjam' not in sys.modules;"
        "build_batch([Record(0, 0, None, b'v')], codec=Codec.LZ4); assert 'cramjam' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_gzip_without_its_trailer_is_cut() -> None:
    with pytest.raises(CorruptBatch, match="truncated"):
        decompress(Codec.GZIP, zlib.compress(b"abc", 9, 31)[:-8], LIMIT)
