import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.TreeMap;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;

/** Kafka's own metadata of remote segments, for test_remote_log_metadata.py: a command a line, an answer a line. */
public class RemoteLogOracle {
    static final HexFormat HEX = HexFormat.of();
    static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();
    static RemoteLogMetadataCache cache = new RemoteLogMetadataCache();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
    }

    static Object answer(String[] words) throws Exception {
        switch (words[0]) {
            case "reencode":
                return HEX.formatHex(SERDE.serialize(read(words[1])));
            case "partition":
                Uuid topicId = new Uuid(Long.parseUnsignedLong(words[1], 16), Long.parseUnsignedLong(words[2], 16));
                return new RemoteLogMetadataTopicPartitioner(Integer.parseInt(words[4]))
                    .metadataPartition(new TopicIdPartition(topicId, Integer.parseInt(words[3]), "t"));
            case "new":
                cache = new RemoteLogMetadataCache();
                call(cache, "markInitialized");
                return "new";
            case "apply":
                return apply(read(words[1]));
            case "find":
                return number((Optional<?>) call(cache, "remoteLogSegmentMetadata",
                    Integer.parseInt(words[1]), Long.parseLong(words[2])));
            case "highest":
                return ((Optional<?>) call(cache, "highestOffsetForEpoch", Integer.parseInt(words[1])))
                    .map(Object::toString).orElse("none");
            case "list":
                return ids((Iterator<?>) call(cache, "listAllRemoteLogSegments"));
            case "within":
                NavigableMap<Integer, Long> epochs = new TreeMap<>();
                for (String entry : words[3].split(",")) {
                    String[] pair = entry.split(":");
                    epochs.put(Integer.valueOf(pair[0]), Long.valueOf(pair[1]));
                }
                Object filtered = call(RemoteLogManager.class, "buildFilteredLeaderEpochMap", epochs);
                return call(RemoteLogManager.class, "isRemoteSegmentWithinLeaderEpochs", read(words[1]),
                    Long.parseLong(words[2]), filtered);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static RemoteLogMetadata read(String hex) {
        return SERDE.deserialize(HEX.parseHex(hex));
    }

    static String apply(RemoteLogMetadata event) throws Exception {
        try {
            if (event instanceof RemoteLogSegmentMetadata) call(cache, "addCopyInProgressSegment", event);
            else call(cache, "updateRemoteLogSegmentMetadata", event);
            return "applied";
        } catch (IllegalStateException | RemoteResourceNotFoundException e) {
            return "refused";
        }
    }

    static String number(Optional<?> segment) {
        return segment.map(one -> "" + id(one)).orElse("none");
    }

    static String ids(Iterator<?> segments) {
        List<Long> found = new ArrayList<>();
        while (segments.hasNext()) found.add(id(segments.next()));
        return found.stream().sorted().toList().toString();
    }

    static long id(Object segment) {
        return ((RemoteLogSegmentMetadata) segment).remoteLogSegmentId().id().getLeastSignificantBits();
    }

    /** Of a class (static) or of an object, whatever its visibility. */
    static Object call(Object target, String name, Object... arguments) throws Exception {
        Class<?> type = target instanceof Class<?> itself ? itself : target.getClass();
        for (Method method : type.getDeclaredMethods())
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                method.setAccessible(true);
                try {
                    return method.invoke(target, arguments);
                } catch (InvocationTargetException e) {
                    throw (Exception) e.getCause();
                }
            }
        throw new NoSuchMethodException(name);
    }
}
