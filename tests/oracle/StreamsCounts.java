import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * Counts the words of lines, for test_streams.py: {@code input}, {@code settings...}. A word that begins with "-" makes
 * the count of what follows it unknown again.
 *
 * Prints {@code restored STORE PARTITION RECORDS} for each store that it brings back, {@code running}, and for a line
 * {@code counts} of standard input all counts, as {@code word COUNT} and {@code window START WORD COUNT}, then {@code end}.
 */
public class StreamsCounts {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (String setting : Arrays.asList(args).subList(1, args.length))
            settings.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        KafkaStreams streams = new KafkaStreams(topology(args[0]).build(), settings);
        streams.setGlobalStateRestoreListener(new Listener());
        streams.setStateListener((now, before) -> System.out.println(now.name().toLowerCase()));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            System.exit(1);
            return null;
        });
        streams.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null && !line.equals("end"); line = lines.readLine()) show(streams);
        streams.close(Duration.ofSeconds(20));
        System.exit(0);
    }

    static StreamsBuilder topology(String input) {
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> words = builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> List.of(line.split(" ")))
            .selectKey((key, word) -> word.replace("-", ""))
            .repartition(Repartitioned.with(Serdes.String(), Serdes.String()).withName("words").withNumberOfPartitions(2))
            .groupByKey();
        words.aggregate(() -> 0L, (word, given, count) -> given.startsWith("-") ? null : (Long) (count + 1),
            Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withValueSerde(Serdes.Long()));
        words.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofHours(1), Duration.ofDays(1))).count(Materialized.as("windows"));
        return builder;
    }

    static class Listener implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) { }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long to, long count) { }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            System.out.println("restored " + store + " " + partition.partition() + " " + total);
        }
    }

    static void show(KafkaStreams streams) {
        try (KeyValueIterator<String, Long> all = streams.store(StoreQueryParameters.fromNameAndType("counts",
                 QueryableStoreTypes.<String, Long>keyValueStore())).all()) {
            all.forEachRemaining(one -> System.out.println("word " + one.key + " " + one.value));
        }
        try (KeyValueIterator<Windowed<String>, Long> all = streams.store(StoreQueryParameters.fromNameAndType("windows",
                 QueryableStoreTypes.<String, Long>windowStore())).all()) {
            all.forEachRemaining(one -> System.out.println("window " + one.key.window().start() + " " + one.key.key()
                + " " + one.value));
        }
        System.out.println("end");
    }
}
