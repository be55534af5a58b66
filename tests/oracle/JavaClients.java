import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java clients as programs, for test_java_clients.py: a producer, a member of a group, a producer of transactions. */
public class JavaClients {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "produce" -> produce(args[1], args[2], Integer.parseInt(args[3]), rest(args, 4));
            case "consume" -> consume(args[1], args[2], args[3], rest(args, 4));
            case "transact" -> transact(args[1], args[2], args[3]);
            case "remove" -> remove(args[1], args[2], rest(args, 3));
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    static List<String> rest(String[] args, int from) {
        return Arrays.asList(args).subList(from, args.length);
    }

    static Map<String, Object> config(String bootstrap, List<String> settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        for (String setting : settings) config.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        return config;
    }

    static KafkaProducer<String, String> producer(Map<String, Object> config) {
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    /** For each codec {@code count} records, some of whose keys and values are null. */
    static void produce(String bootstrap, String topic, int count, List<String> codecs) throws Exception {
        for (String codec : codecs) {
            Map<String, Object> config = config(bootstrap, List.of("compression.type=" + codec, "linger.ms=5"));
            try (KafkaProducer<String, String> producer = producer(config)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < count; i++) {
                    List<Header> headers = List.of(new RecordHeader("codec", codec.getBytes(StandardCharsets.UTF_8)),
                        new RecordHeader("null", (byte[]) null));
                    String key = i % 5 == 0 ? null : "key-" + i, value = i % 7 == 0 ? null : codec + "-" + i;
                    sent.add(producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i, key, value, headers)));
                }
                long first = sent.get(0).get().offset();
                for (int i = 0; i < count; i++)
                    if (sent.get(i).get().offset() != first + i) throw new IllegalStateException("offset of " + i);
                System.out.println(codec + " " + first);
            }
        }
    }

    /** Prints what is assigned and read, and commits it, until standard input ends. */
    static void consume(String bootstrap, String group, String topic, List<String> settings) throws Exception {
        Map<String, Object> config = config(bootstrap, List.of("group.id=" + group, "auto.offset.reset=earliest",
            "enable.auto.commit=false"));
        config.putAll(config(bootstrap, settings));
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> added) {
                    System.out.println("assigned " + consumer.assignment().size());
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> gone) { }
            });
            while (System.in.available() == 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    StringBuilder headers = new StringBuilder();
                    for (Header header : record.headers())
                        headers.append("\t").append(header.key()).append("=").append(header.value() == null ? "null"
                            : new String(header.value(), StandardCharsets.UTF_8));
                    System.out.println("record\t" + record.partition() + "\t" + record.offset() + "\t"
                        + record.timestamp() + "\t" + record.key() + "\t" + record.value() + headers);
                }
                try {
                    consumer.commitSync();
                } catch (RebalanceInProgressException wait) {
                    // The next poll brings the new assignment; what was read is committed after it.
                }
            }
        }
    }

    /** One transaction of three records is committed, one of two is aborted, and one more record is committed. */
    static void transact(String bootstrap, String id, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer(config(bootstrap, List.of("transactional.id=" + id)))) {
            producer.initTransactions();
            for (String value : List.of("kept 0,kept 1,kept 2", "lost 0,lost 1", "kept 3")) {
                producer.beginTransaction();
                for (String one : value.split(",")) producer.send(new ProducerRecord<>(topic, one)).get();
                if (value.startsWith("kept")) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
    }

    static void remove(String bootstrap, String group, List<String> members) throws Exception {
        try (Admin admin = Admin.create(config(bootstrap, List.of()))) {
            List<MemberToRemove> named = members.stream().map(MemberToRemove::new).toList();
            admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(named)).all().get();
        }
    }
}
