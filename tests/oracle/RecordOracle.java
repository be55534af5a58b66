import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;

import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Reads and writes batches and records of logs with Kafka's own classes, for test_record_batches.py. */
public class RecordOracle {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "dump" -> dump(Path.of(args[1]));
            case "write" -> write(Path.of(args[1]));
            case "judge" -> judge();
            case "metadata", "coordinator", "control", "subscription" -> reencode(args[0]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return "x" + HEX.formatHex(bytes);
    }

    static void dump(Path file) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            System.out.println(String.join(" ", "batch", "" + batch.baseOffset(), "" + batch.lastOffset(),
                "" + batch.partitionLeaderEpoch(), batch.compressionType().name(), batch.timestampType().name(),
                "" + batch.isTransactional(), "" + batch.isControlBatch(), "" + batch.producerId(),
                "" + batch.producerEpoch(), "" + batch.baseSequence(), "" + batch.lastSequence(),
                "" + batch.countOrNull(), "" + batch.maxTimestamp(), "" + batch.sizeInBytes()));
            for (Record record : batch) {
                record.ensureValid();
                StringBuilder headers = new StringBuilder();
                for (Header header : record.headers())
                    headers.append(" ").append(hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))))
                        .append("=").append(header.value() == null ? "null" : hex(ByteBuffer.wrap(header.value())));
                System.out.println("record " + record.offset() + " " + record.timestamp() + " " + hex(record.key())
                    + " " + hex(record.value()) + headers);
            }
        }
    }

    /** Each line of standard input is a batch in hex, damaged or not: what its records are, or that it is refused. */
    static void judge() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            StringBuilder found = new StringBuilder("read");
            try {
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(line))).batches()) {
                    batch.ensureValid();
                    for (Record record : batch) {
                        found.append(" | ").append(record.offset()).append(" ").append(record.timestamp())
                            .append(" ").append(hex(record.key())).append(" ").append(hex(record.value()));
                        for (Header header : record.headers())
                            found.append(" ").append(header.value() == null ? "null" : hex(ByteBuffer.wrap(header.value())));
                    }
                }
                System.out.println(found);
            } catch (RuntimeException e) {
                System.out.println("refused");
            }
        }
    }

    static void write(Path folder) throws Exception {
        for (CompressionType type : CompressionType.values()) {
            MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), (byte) 2,
                Compression.of(type).build(), TimestampType.CREATE_TIME, 100L, -1L, 7L, (short) 2, 40, true, 5);
            Header[] headers = {new RecordHeader("häder", "value".getBytes()), new RecordHeader("null", (byte[]) null)};
            builder.append(1_700_000_000_123L, "key".getBytes(), "value".getBytes(), headers);
            builder.append(1_700_000_000_120L, null, new byte[0]);
            builder.append(1_700_000_000_999L, new byte[0], null);
            builder.append(1_700_000_000_000L, null, "repeat me ".repeat(20_000).getBytes());
            for (int i = 0; i < 200; i++) builder.append(1_700_000_001_000L + i, null, ("value " + i * i).getBytes());
            save(folder, type.name(), builder.build());
            builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), (byte) 2, Compression.of(type).build(),
                TimestampType.LOG_APPEND_TIME, 0L, 1_700_000_000_555L);
            builder.append(3L, null, "appended".getBytes());
            save(folder, type.name() + "-append-time", builder.build());
        }
        save(folder, "commit", MemoryRecords.withEndTransactionMarker(50L, 1_700_000_000_001L, 3, 7L, (short) 2,
            new EndTransactionMarker(ControlRecordType.COMMIT, 9)));
        LeaderChangeMessage change = new LeaderChangeMessage().setVersion((short) 0).setLeaderId(3)
            .setVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(3)))
            .setGrantingVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(3)));
        save(folder, "leader-change",
            MemoryRecords.withLeaderChangeMessage(8L, 1_700_000_000_002L, 4, ByteBuffer.allocate(500), change));
    }

    static void save(Path folder, String name, MemoryRecords records) throws Exception {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().get(bytes);
        Files.write(folder.resolve(name), bytes);
    }

    /** Each line of standard input holds values in hex or "null"; Kafka reads and rewrites them; prints that. */
    static void reencode(String kind) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<ByteBuffer> values = List.of(line.split(" ")).stream()
                .map(text -> text.equals("null") ? null : ByteBuffer.wrap(HEX.parseHex(text.substring(1)))).toList();
            System.out.println(switch (kind) {
                case "metadata" -> metadata(values.get(0));
                case "coordinator" -> coordinator(values.get(0), values.get(1));
                case "control" -> control(values.get(0), values.get(1));
                default -> subscription(values.get(0));
            });
        }
    }

    static String metadata(ByteBuffer value) {
        MetadataRecordSerde serde = new MetadataRecordSerde();
        ApiMessageAndVersion record = serde.read(new ByteBufferAccessor(value), value.remaining());
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(serde.recordSize(record, cache));
        serde.write(record, cache, new ByteBufferAccessor(out));
        out.flip();
        return hex(out) + " " + record.message();
    }

    static String coordinator(ByteBuffer key, ByteBuffer value) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        CoordinatorRecord record = serde.deserialize(key, value);
        byte[] out = serde.serializeValue(record);
        return hex(ByteBuffer.wrap(serde.serializeKey(record))) + " " + (out == null ? "null" : hex(ByteBuffer.wrap(out)));
    }

    static String control(ByteBuffer key, ByteBuffer value) {
        ControlRecordType type = ControlRecordType.parse(key);
        return type.name() + " " + switch (type) {
            case LEADER_CHANGE -> new LeaderChangeMessage(new ByteBufferAccessor(value), value.getShort(0));
            case SNAPSHOT_HEADER -> ControlRecordUtils.deserializeSnapshotHeaderRecord(value);
            case SNAPSHOT_FOOTER -> ControlRecordUtils.deserializeSnapshotFooterRecord(value);
            case KRAFT_VERSION -> ControlRecordUtils.deserializeKRaftVersionRecord(value);
            case KRAFT_VOTERS -> ControlRecordUtils.deserializeVotersRecord(value);
            default -> throw new IllegalArgumentException("markers are checked as batches");
        };
    }

    static String subscription(ByteBuffer value) {
        ConsumerPartitionAssignor.Subscription read = ConsumerProtocol.deserializeSubscription(value.duplicate());
        return hex(ConsumerProtocol.serializeSubscription(read, value.getShort(0)));
    }
}
