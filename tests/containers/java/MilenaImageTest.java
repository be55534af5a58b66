import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** A project's test that had apache/kafka, with the image's name changed. */
class MilenaImageTest {
    private static final DockerImageName IMAGE =
            DockerImageName.parse(System.getProperty("image")).asCompatibleSubstituteFor("apache/kafka");

    @Test
    void recordsAreWrittenAndReadInAGroup() throws Exception {
        try (KafkaContainer kafka = new KafkaContainer(IMAGE)) {
            kafka.start();
            List<String> written = new ArrayList<>();
            Map<String, Object> producing =
                    Map.of("bootstrap.servers", kafka.getBootstrapServers(), "acks", "all");
            try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
                for (int number = 0; number < 100; number++) {
                    written.add("record " + number);
                    producer.send(new ProducerRecord<>("orders", "key", "record " + number)).get();
                }
            }
            assertEquals(written, readInAGroup(kafka.getBootstrapServers(), written.size()));
        }
    }

    private static List<String> readInAGroup(String servers, int count) {
        Map<String, Object> consuming =
                Map.of("bootstrap.servers", servers, "group.id", "readers", "auto.offset.reset", "earliest");
        List<String> read = new ArrayList<>();
        long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            while (read.size() < count && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> read.add(record.value()));
            }
        }
        return read;
    }
}
