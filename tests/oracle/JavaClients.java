import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.Future;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
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
            case "transact" -> transact(args[1], args[2], rest(args, 3));
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

    /** A transactional producer that is driven as tests/wire/clients/go/main.go describes, or a read_committed consumer. */
    static void transact(String bootstrap, String what, List<String> args) throws Exception {
        if (what.equals("read")) {
            read(bootstrap, args.get(0), Integer.parseInt(args.get(1)));
            return;
        }
        try (KafkaProducer<String, String> producer = producer(config(bootstrap, List.of("transactional.id=" + args.get(0))));
             Scanner lines = new Scanner(System.in)) {
            producer.initTransactions();
            System.out.println("ok");
            while (lines.hasNextLine()) {
                String[] words = lines.nextLine().split(" ");
                try {
                    switch (words[0]) {
                        case "begin" -> producer.beginTransaction();
                        case "send" ->
                            producer.send(new ProducerRecord<>(words[1], Integer.parseInt(words[2]), null, words[3])).get();
                        case "copy" -> copy(producer, bootstrap, words[1], words[2], words[3], Integer.parseInt(words[4]));
                        case "commit" -> producer.commitTransaction();
                        default -> producer.abortTransaction();
                    }
                    System.out.println("ok");
                } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                    System.out.println("fenced");
                } catch (Exception error) {
                    System.out.println("error: " + error);
                }
            }
        }
    }

    static KafkaConsumer<String, String> committedReader(String bootstrap, List<String> settings) {
        List<String> all = new ArrayList<>(settings);
        all.addAll(List.of("isolation.level=read_committed", "auto.offset.reset=earliest", "enable.auto.commit=false"));
        return new KafkaConsumer<>(config(bootstrap, all), new StringDeserializer(), new StringDeserializer());
    }

    static void copy(KafkaProducer<String, String> producer, String bootstrap, String source, String target, String group,
                     int count) {
        try (KafkaConsumer<String, String> consumer = committedReader(bootstrap, List.of("group.id=" + group))) {
            consumer.subscribe(List.of(source));
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (int copied = 0; copied < count;) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    copied++;
                    producer.send(new ProducerRecord<>(target, 0, null, record.value()));
                    offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        }
    }

    static void read(String bootstrap, String topic, int count) {
        try (KafkaConsumer<String, String> consumer = committedReader(bootstrap, List.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (int found = 0; found < count;) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    found++;
                    System.out.println(record.value());
                }
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
