import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorage;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorageTraverser;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentFileset;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;
import org.apache.kafka.storage.internals.log.RemoteIndexCache;

/**
 * Kafka's own remote storage on a folder, for test_remote_storage.py.
 *
 * Arguments: command, folder, topic, partition, topic id, segment id, start offset, end offset, size of the log, then
 * what the command needs. Bytes are printed in hex.
 */
public class TierOracle {
    static final HexFormat HEX = HexFormat.of();
    static LocalTieredStorage storage;
    static RemoteLogSegmentMetadata segment;

    public static void main(String[] args) throws Exception {
        storage = new LocalTieredStorage();
        storage.configure(Map.of("dir", args[1], "broker.id", 1, "delete.on.close", "false"));
        TopicPartition partition = new TopicPartition(args[2], Integer.parseInt(args[3]));
        TopicIdPartition found = new TopicIdPartition(Uuid.fromString(args[4]), partition);
        RemoteLogSegmentId id = new RemoteLogSegmentId(found, Uuid.fromString(args[5]));
        long start = Long.parseLong(args[6]), end = Long.parseLong(args[7]);
        int size = Integer.parseInt(args[8]);
        segment = new RemoteLogSegmentMetadata(id, start, end, 0L, 1, 0L, size, Map.of(0, start), false);
        switch (args[0]) {
            case "copy" -> copy(Path.of(args[9]));
            case "read" -> read();
            case "list" -> list();
            case "delete" -> storage.deleteLogSegmentData(segment);
            case "indexes" -> indexes(args[9]);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    /** Copy the segment whose files are called s and a suffix. */
    static void copy(Path folder) throws Exception {
        Path txn = folder.resolve("s.txnindex");
        ByteBuffer epochs = ByteBuffer.wrap(Files.readAllBytes(folder.resolve("s.leader_epoch_checkpoint")));
        LogSegmentData data = new LogSegmentData(folder.resolve("s.log"), folder.resolve("s.index"),
            folder.resolve("s.timeindex"), Optional.of(txn).filter(Files::exists), folder.resolve("s.snapshot"), epochs);
        System.out.println(storage.copyLogSegmentData(segment, data));
    }

    static void read() throws Exception {
        System.out.println(HEX.formatHex(storage.fetchLogSegment(segment, 0).readAllBytes()));
        for (IndexType type : IndexType.values()) {
            try {
                System.out.println(HEX.formatHex(storage.fetchIndex(segment, type).readAllBytes()));
            } catch (RemoteResourceNotFoundException missing) {
                System.out.println("missing");
            }
        }
    }

    static void list() {
        storage.traverse(new LocalTieredStorageTraverser() {
            public void visitTopicIdPartition(TopicIdPartition partition) {
                System.out.println(partition);
            }

            public void visitSegment(RemoteLogSegmentFileset files) {
                System.out.println(files.getRemoteLogSegmentId().id());
            }
        });
    }

    /** Positions and offsets as Kafka's index cache finds them, and the files that it made. */
    static void indexes(String folder) throws Exception {
        RemoteIndexCache cache = new RemoteIndexCache(1 << 30, storage, folder);
        for (long offset = segment.startOffset(); offset <= segment.endOffset(); offset++)
            System.out.print(cache.lookupOffset(segment, offset) + " ");
        System.out.println();
        System.out.println(cache.getIndexEntry(segment).txnIndex().allAbortedTxns().size());
        try (var names = Files.list(Path.of(folder, RemoteIndexCache.DIR_NAME))) {
            for (String name : new TreeSet<>(names.map(path -> path.getFileName().toString()).toList()))
                System.out.println(name);
        }
    }
}
