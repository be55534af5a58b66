import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** A project's tests with Testcontainers' classes for Kafka, with the image's name changed. */
class MilenaImageTest {
    private static final DockerImageName IMAGE = DockerImageName.parse(System.getProperty("image"));
    private static final DockerImageName APACHE = IMAGE.asCompatibleSubstituteFor("apache/kafka");
    private static final DockerImageName CONFLUENT = IMAGE.asCompatibleSubstituteFor("confluentinc/cp-kafka");

    @Test
    void theClassForKafkasImage() throws Exception {
        try (KafkaContainer kafka = new KafkaContainer(APACHE)) {
            kafka.start();
            recordsAreWrittenAndReadInAGroup(kafka.getBootstrapServers());
        }
    }

    @Test
    void theClassForConfluentsImageWithAListenerInANetwork() throws Exception {
        try (Network network = Network.newNetwork();
                ConfluentKafkaContainer kafka =
                        new ConfluentKafkaContainer(CONFLUENT).withNetwork(network).withListener("kafka:19092")) {
            kafka.start();
            recordsAreWrittenAndReadInAGroup(kafka.getBootstrapServers());
            var listed = kafka.execInContainer("milena", "topic", "list", "-b", "kafka:19092");
            assertEquals(0, listed.getExitCode(), listed.getStderr());
        }
    }

    @Test
    @SuppressWarnings("deprecation")
    void theOldClassForConfluentsImage() throws Exception {
        try (var kafka = new org.testcontainers.containers.KafkaContainer(CONFLUENT).withKraft()) {
            kafka.start();
            recordsAreWrittenAndReadInAGroup(kafka.getBootstrapServers());
        }
    }

    private static void recordsAreWrittenAndReadInAGroup(String servers) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get();
        }
        List<String> written = new ArrayList<>();
        Map<String, Object> producing = Map.of("bootstrap.servers", servers, "acks", "all");
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 100; number++) {
                written.add("record " + number);
                producer.send(new ProducerRecord<>("orders", "key", "record " + number)).get();
            }
        }
        assertEquals(written, readInAGroup(servers, written.size()));
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
