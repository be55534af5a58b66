import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's clients, spoken to by lines of JSON: a request {@code {"id", "on", "do", ...}} is answered by a line with its
 * id, in any order. {@code on} names a client by the id of the request that made it. Each client has a thread of its own,
 * which takes its requests in order; only a producer's close overtakes them. The process ends with its standard input.
 */
public class ChaosClients {
    static final ObjectMapper JSON = new ObjectMapper();
    static final BlockingQueue<ObjectNode> ANSWERS = new LinkedBlockingQueue<>();
    static final Map<Long, Client> CLIENTS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        start("answers", ChaosClients::write);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            if (request.has("make")) {
                CLIENTS.put(request.get("id").asLong(), new Client(request));
            } else {
                Client client = CLIENTS.get(request.get("on").asLong());
                if (client == null) answer(request, failed(new IllegalStateException("closed")));
                else client.take(request);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** What has come until now goes out at once. */
    static void write() {
        try {
            OutputStream out = new java.io.BufferedOutputStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), 65536);
            while (true) {
                ObjectNode answer = ANSWERS.poll();
                if (answer == null) {
                    out.flush();
                    answer = ANSWERS.take();
                }
                out.write(JSON.writeValueAsBytes(answer));
                out.write('\n');
            }
        } catch (Exception gone) {
            Runtime.getRuntime().halt(1);
        }
    }

    static void answer(JsonNode request, ObjectNode answer) {
        ANSWERS.add(answer.put("id", request.get("id").asLong()));
    }

    static ObjectNode failed(Throwable error) {
        while (error instanceof ExecutionException && error.getCause() != null) error = error.getCause();
        return JSON.createObjectNode().put("error", error.toString()).put("code", Errors.forException(error).code());
    }

    static Map<String, Object> config(JsonNode fields) {
        Map<String, Object> config = new HashMap<>();
        fields.fields().forEachRemaining(field -> config.put(field.getKey(), field.getValue().asText()));
        return config;
    }

    static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    static TopicPartition partition(JsonNode node) {
        return new TopicPartition(node.get(0).asText(), node.get(1).asInt());
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode request) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode place : request.get("offsets"))
            offsets.put(partition(place), new OffsetAndMetadata(place.get(2).asLong()));
        return offsets;
    }

    static Duration seconds(JsonNode request) {
        return Duration.ofMillis((long) (request.get("seconds").asDouble() * 1000));
    }

    interface Work extends AutoCloseable {
        ObjectNode perform(JsonNode request) throws Exception;

        void close(Duration limit);

        @Override
        default void close() { }
    }

    /** A client and its thread. */
    static class Client {
        final BlockingQueue<JsonNode> requests = new LinkedBlockingQueue<>();
        volatile Work work;

        Client(JsonNode making) {
            start(making.get("make").asText(), () -> run(making));
        }

        void take(JsonNode request) {
            if (request.get("do").asText().equals("close") && work instanceof Producer) start("closing", () -> close(request));
            else requests.add(request);
        }

        void close(JsonNode request) {
            try {
                if (work != null) work.close(seconds(request));
                answer(request, JSON.createObjectNode());
            } catch (Exception error) {
                answer(request, failed(error));
            }
            CLIENTS.remove(request.get("on").asLong());
            requests.add(JSON.createObjectNode());
        }

        void run(JsonNode making) {
            try {
                work = make(making.get("make").asText(), config(making.get("config")), making);
                answer(making, JSON.createObjectNode());
            } catch (Exception error) {
                answer(making, failed(error));
            }
            while (true) {
                try {
                    JsonNode request = requests.take();
                    if (!request.has("do")) return;
                    if (request.get("do").asText().equals("close")) close(request);
                    else perform(request);
                } catch (InterruptedException end) {
                    return;
                }
            }
        }

        void perform(JsonNode request) {
            try {
                if (work == null) throw new IllegalStateException("it was not made");
                ObjectNode answer = work.perform(request);
                if (answer != null) answer(request, answer);
            } catch (Exception error) {
                answer(request, failed(error));
            }
        }
    }

    static Work make(String kind, Map<String, Object> config, JsonNode request) {
        return switch (kind) {
            case "producer" -> new Producer(config);
            case "consumer" -> new Consumer(config, request);
            case "admin" -> new Administrator(config);
            default -> throw new IllegalArgumentException(kind);
        };
    }

    static class Producer implements Work {
        final KafkaProducer<String, String> producer;

        Producer(Map<String, Object> config) {
            producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        }

        /** Of a record, {@code taken}: whether the producer had taken it. It had not if the callback comes out of send itself. */
        @Override
        public ObjectNode perform(JsonNode request) {
            switch (request.get("do").asText()) {
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "offsets" -> sendOffsets(request);
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                default -> {
                    return send(request);
                }
            }
            return JSON.createObjectNode();
        }

        void sendOffsets(JsonNode request) {
            JsonNode group = request.get("group");
            producer.sendOffsetsToTransaction(offsets(request), new ConsumerGroupMetadata(group.get(0).asText(),
                group.get(1).asInt(), group.get(2).asText(), Optional.empty()));
        }

        ObjectNode send(JsonNode request) {
            JsonNode place = request.get("partition");
            try {
                producer.send(new ProducerRecord<>(place.get(0).asText(), place.get(1).asInt(), text(request.get("key")),
                    text(request.get("value"))), (metadata, error) -> answer(request,
                        error == null ? JSON.createObjectNode().put("offset", metadata.offset())
                            : failed(error).put("taken", !Thread.currentThread().getName().equals("producer"))));
                return null;
            } catch (Exception error) {
                return failed(error).put("taken", false);
            }
        }

        @Override
        public void close(Duration limit) {
            producer.close(limit);
        }
    }

    static class Consumer implements Work, ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        int assignments = 0;

        Consumer(Map<String, Object> config, JsonNode request) {
            consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            List<TopicPartition> partitions = new ArrayList<>();
            for (JsonNode place : request.get("positions")) partitions.add(partition(place));
            if (!partitions.isEmpty()) consumer.assign(partitions);
            for (JsonNode place : request.get("positions")) consumer.seek(partition(place), place.get(2).asLong());
            List<String> topics = new ArrayList<>();
            for (JsonNode topic : request.get("topics")) topics.add(topic.asText());
            if (!topics.isEmpty()) consumer.subscribe(topics, this);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            assignments++;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> gone) { }

        @Override
        public ObjectNode perform(JsonNode request) {
            ObjectNode answer = JSON.createObjectNode();
            switch (request.get("do").asText()) {
                case "poll" -> {
                    ArrayNode records = answer.putArray("records");
                    for (ConsumerRecord<String, String> record : consumer.poll(seconds(request))) add(records.addArray(), record);
                    answer.put("assignment", assignments);
                    if (assignments > 0) {
                        ConsumerGroupMetadata group = consumer.groupMetadata();
                        answer.putArray("group").add(group.groupId()).add(group.generationId()).add(group.memberId());
                    }
                }
                case "ends" -> {
                    List<TopicPartition> one = List.of(partition(request.get("partition")));
                    answer.put("begin", consumer.beginningOffsets(one, seconds(request)).get(one.get(0)));
                    answer.put("end", consumer.endOffsets(one, seconds(request)).get(one.get(0)));
                }
                case "commit" -> consumer.commitSync(offsets(request), seconds(request));
                default -> throw new IllegalArgumentException(request.toString());
            }
            return answer;
        }

        static void add(ArrayNode fields, ConsumerRecord<String, String> record) {
            Optional<Integer> epoch = record.leaderEpoch();
            fields.add(record.topic()).add(record.partition()).add(record.offset()).add(record.key()).add(record.value());
            fields.add(epoch.orElse(-1));
        }

        @Override
        public void close(Duration limit) {
            consumer.close(CloseOptions.timeout(limit));
        }
    }

    static class Administrator implements Work {
        final Admin admin;

        Administrator(Map<String, Object> config) {
            admin = Admin.create(config);
        }

        @Override
        public ObjectNode perform(JsonNode request) throws Exception {
            ObjectNode answer = JSON.createObjectNode();
            String topic = request.path("topic").asText();
            KafkaFuture<?> done = switch (request.get("do").asText()) {
                case "create" -> admin.createTopics(List.of(new NewTopic(topic, request.get("partitions").asInt(),
                    (short) request.get("replicas").asInt()).configs(settings(request)))).all();
                case "delete" -> admin.deleteTopics(List.of(topic)).all();
                case "set" -> admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic),
                    changes(request))).all();
                case "list" -> admin.listTopics().names().thenApply(names -> {
                    ArrayNode listed = answer.putArray("topics");
                    names.forEach(listed::add);
                    return null;
                });
                default -> throw new IllegalArgumentException(request.toString());
            };
            done.get();
            return answer;
        }

        static Map<String, String> settings(JsonNode request) {
            Map<String, String> settings = new HashMap<>();
            request.get("config").fields().forEachRemaining(one -> settings.put(one.getKey(), one.getValue().asText()));
            return settings;
        }

        static Collection<AlterConfigOp> changes(JsonNode request) {
            List<AlterConfigOp> changes = new ArrayList<>();
            settings(request).forEach((name, value) ->
                changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
            return changes;
        }

        @Override
        public void close(Duration limit) {
            admin.close(limit);
        }
    }
}
