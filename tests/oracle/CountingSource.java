import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source for Kafka Connect: the numbers from 0 to {@code count} - 1, {@code pace} a second, in partition 0 and 1 in turn. */
public class CountingSource extends SourceConnector {
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> settings) {
        this.settings = settings;
    }

    @Override
    public void stop() { }

    @Override
    public String version() {
        return "1";
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counting.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(settings);
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> settings) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    public static class Counting extends SourceTask {
        private static final Map<String, String> PLACE = Map.of("source", "numbers");
        private static final int AT_ONCE = 40;
        private String topic;
        private long count;
        private long pauseMs;
        private long next;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> settings) {
            topic = settings.get("topic");
            count = Long.parseLong(settings.get("count"));
            pauseMs = 1000L * AT_ONCE / Long.parseLong(settings.get("pace"));
            Map<String, Object> offset = context.offsetStorageReader().offset(PLACE);
            next = offset == null ? 0 : (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(pauseMs);
            List<SourceRecord> records = new ArrayList<>();
            for (; next < count && records.size() < AT_ONCE; next++) {
                Map<String, Long> offset = Map.of("next", next + 1);
                records.add(new SourceRecord(PLACE, offset, topic, (int) (next % 2), null, null, Schema.STRING_SCHEMA, "" + next));
            }
            return records.isEmpty() ? null : records;
        }

        @Override
        public void stop() { }
    }
}
