import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Collectors;

import org.apache.kafka.common.utils.MockTime;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Kafka's cleaner on logs that others wrote, for test_cleaner.py: one round for each line, or the segments of a log. */
public class CleanerOracle {
    /** Replaced segments stay as .deleted files. */
    static class Never implements Scheduler {
        public void startup() {}
        public void shutdown() {}
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) { return null; }
        public void resizeThreadPool(int newSize) {}
    }

    static UnifiedLog open(String folder, LogConfig config, MockTime time) throws Exception {
        return UnifiedLog.create(new File(folder), config, 0, 0, new Never(), new BrokerTopicStats(), time, 900_000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, new LogDirFailureChannel(1), true,
            Optional.empty());
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("load")) {
                MockTime time = new MockTime(0, Long.parseLong(words[2]), 0);
                UnifiedLog log = open(words[1], new LogConfig(Map.of("cleanup.policy", "compact")), time);
                System.out.println(log.logSegments().stream().map(one -> "" + one.baseOffset())
                    .collect(Collectors.joining(" ")));
                continue;
            }
            long firstDirty = Long.parseLong(words[1]);
            long uncleanable = Long.parseLong(words[2]);
            long now = Long.parseLong(words[3]);
            LogConfig config = new LogConfig(Map.of("cleanup.policy", "compact", "delete.retention.ms", words[4],
                "internal.segment.bytes", words[5], "index.interval.bytes", words[6], "max.message.bytes", 1 << 20));
            MockTime time = new MockTime(0, now, 0);
            UnifiedLog log = open(words[0], config, time);
            log.updateHighWatermark(log.logEndOffset());
            Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "throttle", "bytes", time);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(Integer.parseInt(words[7])), 1 << 20, 1 << 20,
                Double.parseDouble(words[8]), throttler, time, partition -> { });
            LogToClean work = new LogToClean(log, firstDirty, uncleanable, false);
            Map.Entry<Long, CleanerStats> done = cleaner.doClean(work, now);
            System.out.println(done.getKey() + " " + work.firstUncleanableOffset());
        }
    }
}
