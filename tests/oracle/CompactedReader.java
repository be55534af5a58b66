import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.util.KafkaBasedLog;
import org.apache.kafka.connect.util.TopicAdmin;

/** Reads compacted topics to their ends, for test_compacted_reads.py: as a consumer, and as a worker of Kafka Connect. */
public class CompactedReader {
    static final String STRINGS = "org.apache.kafka.common.serialization.String";

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "consume" -> consume(args[1], args[2]);
            case "connect" -> connect(args[1], args[2]);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    static Map<String, Object> client(String bootstrap) {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "fetch.max.wait.ms", "20", "key.deserializer", STRINGS + "Deserializer",
            "value.deserializer", STRINGS + "Deserializer"));
    }

    /** Prints all records, the end, and where a consumer lands that begins at each offset. */
    static void consume(String bootstrap, String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(client(bootstrap), new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(5)))
                    System.out.println("record\t" + record.offset() + "\t" + record.key() + "\t" + record.value());
            System.out.println("end\t" + consumer.position(partition) + "\t" + consumer.currentLag(partition).getAsLong());
            for (long offset = 0; offset < end; offset += 7) {
                consumer.seek(partition, offset);
                String found = "none";
                while (found.equals("none") && consumer.position(partition) < end)
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(5)))
                        if (found.equals("none")) found = "" + record.offset();
                System.out.println("from\t" + offset + "\t" + found);
            }
        }
    }

    /** Keeps a topic as Connect does its configurations: prints whether it is compacted, and all last values. */
    static void connect(String bootstrap, String topic) throws Exception {
        TopicAdmin admin = new TopicAdmin(Map.of("bootstrap.servers", bootstrap));
        boolean isNew = admin.createOrFindTopics(TopicAdmin.defineTopic(topic).compacted().partitions(1)
            .replicationFactor((short) 1).config(Map.of("internal.segment.bytes", "2000",
            "min.cleanable.dirty.ratio", "0.01")).build()).isCreated(topic);
        System.out.println("compacted\t" + admin.verifyTopicCleanupPolicyOnlyCompact(topic, "config.storage.topic", "it"));
        Map<String, String> kept = new TreeMap<>();
        Map<String, Object> producer = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
            "key.serializer", STRINGS + "Serializer", "value.serializer", STRINGS + "Serializer", "linger.ms", "0"));
        KafkaBasedLog<String, String> log = new KafkaBasedLog<>(topic, producer, client(bootstrap), () -> admin,
            (error, record) -> {
                if (error != null) throw new IllegalStateException(error);
                if (record.value() == null) kept.remove(record.key());
                else kept.put(record.key(), record.value());
            }, Time.SYSTEM, ignored -> { });
        log.start();
        if (isNew) {
            for (int i = 0; i < 300; i++)
                log.sendWithReceipt("key-" + i % 20, i % 20 == 7 && i > 200 ? null : "value " + i).get(10, TimeUnit.SECONDS);
            log.readToEnd().get(10, TimeUnit.SECONDS);
        }
        kept.forEach((key, value) -> System.out.println("kept\t" + key + "\t" + value));
        log.stop();
        admin.close();
    }
}
